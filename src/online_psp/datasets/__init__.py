"""Data with a known answer."""

from __future__ import annotations

from online_psp.datasets.spiked import Spiked, SpikedCovariance, spiked_covariance

__all__ = ["Spiked", "SpikedCovariance", "spiked_covariance"]
