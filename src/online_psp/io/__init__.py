"""Reading and writing: sources of rows, model files, and the loop that fits a model to a source."""
