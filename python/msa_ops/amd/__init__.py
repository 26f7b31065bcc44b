"""Backends on AMD GPUs: their records, and the functions that hand checked arguments to compiled kernels."""
