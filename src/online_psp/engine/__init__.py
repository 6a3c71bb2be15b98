"""The arithmetic under the algorithms: rows, where a basis is stored, compiled kernels, BLAS and block sizes."""
