"""What the ``psp`` command does with sources and model files: one module a command."""
