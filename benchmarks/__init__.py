"""What the README and the docs claim about speed and accuracy, measured: ``python -m benchmarks``."""
