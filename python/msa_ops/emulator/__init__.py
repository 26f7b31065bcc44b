"""Kernels executed on a CPU: `run_ptx` for any PTX text, `load_object` for any object that CuTe-DSL exported, `jit` for
functions that CuTe-DSL compiles in this process, `run_compiled` for the kernels of this build, `run_gfx950` for any
code object of CDNA4.

What is executed and what is checked: docs/emulator.md.
"""

from msa_ops._C import CodeObjectError, EmulatorFault, PtxError, UnsupportedGfx950, UnsupportedPtx
from msa_ops.emulator.chip import ARCHS, Launch, VirtualChip, emulate
from msa_ops.emulator.compiled_object import CompiledObject, load_object
from msa_ops.emulator.cpu_as_gpu import cpu_as_gpu
from msa_ops.emulator.gfx950 import run_gfx950, run_gfx950_on_devices
from msa_ops.emulator.jit import JitLaunch, JitSession, jit
from msa_ops.emulator.multicast import multicast
from msa_ops.emulator.run import (
    Report,
    SpaceBytes,
    TensorBytes,
    opcodes,
    run_compiled,
    run_ptx,
    run_ptx_on_devices,
)
from msa_ops.emulator.tables import tables
from msa_ops.emulator.tensor_map import im2col_map, tensor_map

__all__ = [
    "ARCHS",
    "CodeObjectError",
    "CompiledObject",
    "EmulatorFault",
    "JitLaunch",
    "JitSession",
    "Launch",
    "PtxError",
    "Report",
    "SpaceBytes",
    "TensorBytes",
    "UnsupportedGfx950",
    "UnsupportedPtx",
    "VirtualChip",
    "cpu_as_gpu",
    "emulate",
    "im2col_map",
    "jit",
    "load_object",
    "multicast",
    "opcodes",
    "run_compiled",
    "run_gfx950",
    "run_gfx950_on_devices",
    "run_ptx",
    "run_ptx_on_devices",
    "tables",
    "tensor_map",
]
