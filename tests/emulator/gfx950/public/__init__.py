"""Runs public FlyDSL kernels on the emulated gfx950: `python -m tests.emulator.gfx950.public FLYDSL_FOLDER CASE...`.

FLYDSL_FOLDER is a checkout of FlyDSL, whose `kernels/` are imported as they are; FlyDSL's wheel compiles them. Their
host code launches through a library that stands in for HIP (hip.c, hip.py) and hands each launch to the emulator; to
torch, the CPU plays the GPU (host.py). `cases/` holds a driver and a reference of our own for each kernel.
"""
