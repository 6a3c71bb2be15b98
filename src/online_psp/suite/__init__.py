"""The paper's test suite, and all measuring."""
