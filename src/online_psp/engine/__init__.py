"""The arithmetic that the algorithms share: rows, stores of a basis, compiled kernels, BLAS and block sizes."""
