"""Ahead-of-time compilation of kernels: units, the compiler driver, metadata, budgets. Needs the extra `build`."""
