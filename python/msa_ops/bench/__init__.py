"""Benchmarks: workload files, timers, roofs, the result file, and the comparison of stored results.

Importing this package imports nothing else; take what you need from its modules.
"""
