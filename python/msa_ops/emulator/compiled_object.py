"""Object files that CuTe-DSL exported, run with their host launchers: `load_object`."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msa_ops import _C
from msa_ops.emulator import units
from msa_ops.emulator.arguments import MAX_INSTRUCTIONS, check_options, float_bytes, plain, several, text
from msa_ops.emulator.devices import ChipLike, device
from msa_ops.emulator.memory import address_of, is_memory
from msa_ops.emulator.object_header import LauncherArguments, launcher_arguments
from msa_ops.emulator.ptx_parameter import parameter_bytes
from msa_ops.emulator.run import Report, allocations_of, check_text, report_of, with_peers
from msa_ops.emulator.source_lines import told

_LAUNCHER = re.compile(r"\b_mlir_(\w+?)__mlir_ciface_\w+")
_NULL = bytes(8)
_RUNTIME_LIBRARIES = ("-lm",)


class CompiledObject:
    """The host launcher of an exported kernel, loaded into this process, and the PTX of what it launches.

    Made by `load_object`. `run` executes it on one emulated chip, `run_on_devices` on several that may use each other's
    memory. It stays in the process until that ends, as any shared library that was loaded.
    """

    def __init__(
        self,
        name: str,
        functions: _C.ObjectFunctions,
        modules: Sequence[str],
        arguments: LauncherArguments | None = None,
    ) -> None:
        self.name = name
        self._arguments = arguments
        self._functions = functions
        self._modules = list(modules)

    @property
    def argument_sizes(self) -> list[int | None] | None:
        """Bytes of the arguments as the header says, None where it does not; None without a header."""
        return None if self._arguments is None else self._arguments.sizes

    def run(
        self,
        *arguments: Any,
        chip: ChipLike,
        tensors: Mapping[str, Any] | None = None,
        max_instructions: int = MAX_INSTRUCTIONS,
        seed: int | None = None,
        sum_order: int | None = None,
        threads: int = 1,
        multiprocessors: int | None = None,
    ) -> Report:
        """Calls the launcher, and executes what it launches.

        arguments: the launcher's, in order and without the stream, members of tuples one by one: a CPU tensor or NumPy
            array for a pointer (exactly its bytes are memory that the kernels may use), an int of up to eight bytes,
            a float for fp32, None for a null pointer, bytes for a structure. CuTe-DSL leaves out arguments that were
            constants when it compiled. With the object's header their number and the lengths of bytes are checked,
            and numbers become what its types say (2 for a `float` is 2.0); without it the launcher reads on behind
            bytes that are too short.
        chip, tensors, max_instructions, seed, sum_order, threads, multiprocessors: as in `run_ptx`; the launcher sees
            the number of multiprocessors too.

        Raises as `run_ptx`; ValueError for arguments that are not those of the header; RuntimeError if the launcher
        gives up by itself.
        """
        check_options(max_instructions=max_instructions, seed=seed, threads=threads, sum_order=sum_order)
        arch, multiprocessors = device(chip, multiprocessors)
        with told():
            counters = _C.emulate_object(
                self._functions,
                self._modules,
                self._values(arguments),
                allocations_of(arguments, tensors),
                max_instructions,
                arch,
                seed,
                sum_order,
                threads,
                multiprocessors,
            )
        return report_of(counters)

    def run_on_devices(
        self,
        arguments: Sequence[Sequence[Any]],
        *,
        chip: ChipLike,
        tensors: Mapping[str, Any] | None = None,
        max_instructions: int = MAX_INSTRUCTIONS,
        seed: int | None = None,
        sum_order: int | None = None,
        threads: int = 1,
        multiprocessors: int | None = None,
    ) -> list[Report]:
        """Calls the launcher once for each device, and executes what they launch at the same time: the first launch of
        every device together, then the second. All devices may use all memory.

        arguments: those of each device. The rest is as in `run`. Returns the reports of the devices.
        Raises as `run`; ValueError if the devices do not launch the same number of kernels.
        """
        if not arguments:
            raise ValueError("arguments: none; accepted: those of at least one device")
        check_options(max_instructions=max_instructions, seed=seed, threads=threads, sum_order=sum_order)
        memory = [one for i, own in enumerate(arguments) for one in allocations_of(own, None, f"device {i} ")]
        memory += allocations_of((), tensors)
        arch, multiprocessors = device(chip, multiprocessors)
        with told():
            counters = _C.emulate_object_on_devices(
                self._functions,
                self._modules,
                [self._values(own) for own in arguments],
                [memory] * len(arguments),
                max_instructions,
                arch,
                seed,
                sum_order,
                threads,
                multiprocessors,
            )
        return [with_peers(report_of(one), _of_others(i)) for i, one in enumerate(counters)]

    def _values(self, arguments: Sequence[Any]) -> list[bytes]:
        """The arguments as the launcher reads them, with null streams where it takes them; without a header that is
        behind all others. Raises ValueError for what is not as in the header."""
        known = self._arguments
        if known is None:
            return [*(_value(i, one) for i, one in enumerate(arguments)), _NULL]
        if len(arguments) != len(known.sizes):
            raise ValueError(f"arguments: {len(arguments)}; the launcher takes {len(known.sizes)}")
        values = [_value(i, *one) for i, one in enumerate(zip(arguments, known.types, known.sizes, strict=True))]
        for i, (given, value, size) in enumerate(zip(arguments, values, known.sizes, strict=True)):
            exact = isinstance(plain(given), bytes)
            if size is not None and (len(value) != size if exact else size > len(value)):
                kind = f"{len(value)} bytes" if exact else type(given).__name__
                raise ValueError(f"argument {i}: {kind}; accepted: {size} bytes")
        for position in known.streams:
            values.insert(position, _NULL)
        return values


def _of_others(device: int) -> Callable[[str], bool]:
    """Whether a tensor that is an argument is one of another device."""
    return lambda name: name.startswith("device ") and not name.startswith(f"device {device} ")


def load_object(
    path: str | os.PathLike[str],
    ptx: str | Sequence[str],
    compiler: str | None = None,
    header: str | os.PathLike[str] | None = None,
) -> CompiledObject:
    """Loads an object file that CuTe-DSL exported (`compiled.export_to_c`) for this machine's processor.

    path: the object file, with one host launcher. ptx: the text of the kernels that it launches, or several texts if it
    launches kernels of several modules; CuTe-DSL leaves them in its dump directory with `CUTE_DSL_KEEP=ptx`.
    compiler: the C compiler that links; default: `CC`, or the first of cc, gcc, clang that there is.
    header: the header file that the export wrote, for checks of arguments; default: the one of the object's name beside
        it, if there is one.

    The object calls functions of a CUDA runtime library. They become those of this package, for this object alone, so
    no GPU, driver or library of NVIDIA is needed, and one that is loaded is not touched.

    Raises ValueError for an empty text, for a file that is no such object, or that calls functions which the emulator
    does not offer (named); RuntimeError without a C compiler; NotImplementedError on processors other than x86-64.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        raise NotImplementedError(f"objects are loaded on x86-64 only, not on {platform.machine()}")
    texts = [ptx] if isinstance(ptx, str) else list(several("ptx", ptx))
    for name, value in (("path", path), ("header", header)):
        if isinstance(value, str):
            text(name, value)
        elif not isinstance(value, os.PathLike) and (value is not None or name == "path"):
            raise TypeError(f"{name}: {type(value).__name__}; accepted: str or a path")
    if not texts:
        raise ValueError("ptx: no text; accepted: the texts of the kernels that the object launches")
    for one in texts:
        check_text(one)
        if not one.strip():
            raise ValueError("ptx: an empty text; accepted: the texts of the kernels that the object launches")
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"path: {path} is a folder; accepted: an object file")
    content = path.read_bytes()
    if content[:4] != b"\x7fELF":
        raise ValueError(f"{path}: not an object file")
    for one in texts:
        units.load_for(one)
    library = linked(path, compiler)
    launcher = _launcher(path, content)
    prefix = f"_mlir_{launcher[1]}"
    addresses = [
        _address_of(library, path, symbol)
        for symbol in (f"{prefix}_cuda_init", f"{prefix}_cuda_load_to_device", launcher[0])
    ]
    beside = path.with_suffix(".h")
    known = Path(header) if header is not None else beside if beside.is_file() else None
    told_by_header = None if known is None else launcher_arguments(known.read_text(encoding="utf-8"))
    return CompiledObject(launcher[1], _C.ObjectFunctions(launcher[1], *addresses), texts, told_by_header)


def _launcher(path: Path, content: bytes) -> tuple[str, str]:
    """Name of the launcher and the prefix that was given at the export."""
    found = {match[0]: match[1] for match in _LAUNCHER.finditer(content.decode("latin-1"))}
    if len(found) != 1:
        raise ValueError(f"{path}: {len(found)} host launchers of CuTe-DSL; accepted: 1")
    return next(iter(found.items()))


def _address_of(library: ctypes.CDLL, path: Path, symbol: str) -> int:
    try:
        function = getattr(library, symbol)
    except AttributeError:
        raise ValueError(f"{path}: it has no function {symbol}") from None
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def linked(path: Path, compiler: str | None = None, libraries: Sequence[str] = ()) -> ctypes.CDLL:
    """The object as a shared library whose calls of the CUDA runtime jump through a table, and the table filled.

    libraries: files of shared libraries that it may call, beside those of the process. Raises as `load_object`.
    """
    compiler = _c_compiler(compiler)
    functions = _C.seam_functions()
    with tempfile.TemporaryDirectory() as folder:
        jumps = Path(folder) / "jumps.s"
        jumps.write_text(_jumps(sorted(functions)))
        target = Path(folder) / "object.so"
        # Without more libraries, whatever the object calls has to be there.
        ends = libraries or ("-Wl,-z,defs", *_RUNTIME_LIBRARIES)
        command = [compiler, "-shared", "-o", str(target), str(path), str(jumps), *ends]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            missing = sorted(set(re.findall(r"undefined (?:reference to|symbol:?) [`'\"]?(\w+)", done.stderr)))
            reason = f"it calls {', '.join(missing)}, which are not offered" if missing else done.stderr.strip()
            raise ValueError(f"{path}: cannot be linked: {reason}")
        library = ctypes.CDLL(str(target), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    table = (ctypes.c_uint64 * len(functions)).in_dll(library, "msa_ops_seam_table")
    table[:] = [functions[name] for name in sorted(functions)]
    return library


def _c_compiler(compiler: str | None) -> str:
    """The C compiler that links: the given one, or `CC`, or what there is. Raises RuntimeError if there is none."""
    found = compiler or os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if found is None:
        raise RuntimeError("no C compiler to link the object with; set CC or give `compiler`")
    return found


def _jumps(names: Sequence[str]) -> str:
    """Assembly: a hidden function of each name that jumps to the address in its place of the table."""
    lines = [".text"]
    for i, name in enumerate(names):
        lines += [f".globl {name}", f".hidden {name}", f".type {name}, @function"]
        lines += [f"{name}: jmp *msa_ops_seam_table+{8 * i}(%rip)"]
    lines += [".data", ".balign 8", ".globl msa_ops_seam_table", ".protected msa_ops_seam_table"]
    lines += [".type msa_ops_seam_table, @object", f".size msa_ops_seam_table, {8 * len(names)}"]
    lines += [f"msa_ops_seam_table: .zero {8 * len(names)}", '.section .note.GNU-stack,"",@progbits', ""]
    return "\n".join(lines)


def _value(index: int, value: Any, kind: str = "", size: int | None = None) -> bytes:
    """An argument as the launcher reads it at the address that it is given, by its type if the header tells it."""
    value = plain(value)
    if isinstance(value, bytes):
        return value
    if kind and size is not None:
        return parameter_bytes(index, value, size, kind).ljust(8, b"\0")
    if isinstance(value, float):
        return float_bytes(f"argument {index}", value, 4) + bytes(4)
    number = 0 if value is None else address_of("", value) if is_memory(value) else value
    if not isinstance(number, int):
        raise TypeError(f"argument {index}: {type(value).__name__}; accepted: tensor, array, int, float, None, bytes")
    if not -(1 << 63) <= number < 1 << 64:
        raise ValueError(f"argument {index}: {number}; accepted: integers of eight bytes")
    return (number % (1 << 64)).to_bytes(8, "little")
