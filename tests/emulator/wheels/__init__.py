"""Kernels of packages that PyPI offers (the extra `public`), called through their own Python entries."""
