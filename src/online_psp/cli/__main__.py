"""``python -m online_psp.cli``."""

from __future__ import annotations

from online_psp.cli.main import app

app()
