"""The arithmetic that the algorithms share: rows, products by BLAS, compiled kernels, threads, locks and block sizes."""
