"""The tests: CONTRIBUTING says which of them goes where."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""
DATA = Path(__file__).parent / "data"
