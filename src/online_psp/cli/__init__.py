"""The ``psp`` command, with one module per command."""
