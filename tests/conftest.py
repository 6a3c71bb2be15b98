"""Where the optional real data and recordings are, and how hypothesis runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example]
)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def data_home() -> Path:
    """The folder of the paper's real data sets."""
    home = os.environ.get("ONLINE_PSP_DATA")
    if not home or not Path(home).is_dir():
        pytest.skip("the paper's data sets are not here: set ONLINE_PSP_DATA to their folder")
    return Path(home)


@pytest.fixture
def hear_ctrl_c() -> Iterator[None]:
    """Where the tests run in the background of a script, or by nohup, signals are ignored, and child processes inherit that: not here."""
    before = [(signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))]
    if hasattr(signal, "SIGHUP"):
        before.append((signal.SIGHUP, signal.signal(signal.SIGHUP, signal.SIG_DFL)))
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def golden_home(data_home: Path) -> Path:
    """The folder of figures recorded from the authors' package, beside the data."""
    home = data_home.parent / "golden"
    if not home.is_dir():
        pytest.skip(f"no recorded figures beside the data, in {home.name}/")
    return home
