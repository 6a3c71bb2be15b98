"""``python -m online_psp.cli``, which is ``psp``."""

from __future__ import annotations

from online_psp.cli.start import leave_out_working_folder, psp

if __name__ == "__main__":
    leave_out_working_folder()
    psp()
