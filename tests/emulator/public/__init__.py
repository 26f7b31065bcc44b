"""Runs public CuTe-DSL kernels on the emulated chips: `python -m tests.emulator.public CUTLASS_FOLDER CASE...`.

CUTLASS_FOLDER is a checkout of NVIDIA/cutlass, whose examples are imported as they are, from `examples/python/CuTeDSL`.
To them the CPU plays the GPU (host.py); what they compile runs in `msa_ops.emulator.jit`, and their own references
judge the results. `cases/` says what each is called with. Every case runs in the order of warps and with seeds 1 and 2,
or with those that `--seed` names. Without a case: the list.
"""
