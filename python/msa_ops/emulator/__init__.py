"""Kernels in PTX, executed on a CPU: `run_ptx` for any PTX text, `run_compiled` for the kernels of this build.

What is executed and what is checked: docs/emulator.md.
"""

from msa_ops._C import EmulatorFault, PtxError, UnsupportedPtx
from msa_ops.emulator.chip import ARCHS, Launch, VirtualChip, emulate
from msa_ops.emulator.run import Report, opcodes, run_compiled, run_ptx

__all__ = [
    "ARCHS",
    "EmulatorFault",
    "Launch",
    "PtxError",
    "Report",
    "UnsupportedPtx",
    "VirtualChip",
    "emulate",
    "opcodes",
    "run_compiled",
    "run_ptx",
]
