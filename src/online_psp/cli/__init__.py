"""The ``psp`` command: one module a command."""
