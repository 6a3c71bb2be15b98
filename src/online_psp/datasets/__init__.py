"""Synthetic data with a known answer, the paper's data sets, and readers for your own."""

from __future__ import annotations

from online_psp.datasets.files import read_file
from online_psp.datasets.images import DataSet, ImageLayout
from online_psp.datasets.registry import KNOWN, KnownSet, load, locate
from online_psp.datasets.spiked import Spiked, SpikedCovariance, spiked_covariance

__all__ = ["KNOWN", "DataSet", "ImageLayout", "KnownSet", "Spiked", "SpikedCovariance", "load", "locate", "read_file", "spiked_covariance"]
