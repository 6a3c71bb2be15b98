"""Rows in, models out: sources of rows, model files, and the loop that fits a model to a source."""
