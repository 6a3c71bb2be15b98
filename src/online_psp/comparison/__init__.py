"""This package beside what people would use instead: time, error and memory on the same rows. ``psp bench``."""
