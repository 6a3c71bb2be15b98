"""Comparison with other packages: time, error and memory on the same rows. ``psp bench``."""
