"""Functions that CuTe-DSL compiles in this process, run on an emulated chip: `jit`."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import itertools
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from msa_ops import _C
from msa_ops.emulator import units
from msa_ops.emulator.arguments import MAX_INSTRUCTIONS
from msa_ops.emulator.compiled_object import linked
from msa_ops.emulator.devices import ChipLike, device
from msa_ops.emulator.memory import Allocation, allocation
from msa_ops.emulator.run import Report, report_of
from msa_ops.emulator.source_lines import told

_CUDA_DEVICE = 2
"""DLPack's number."""


@dataclass(frozen=True)
class JitLaunch:
    """A kernel that ran, and what it did."""

    kernel: str
    report: Report


class JitSession:
    """What `jit` gives: the memory of the chip, and since it began, in order, the launches and the PTX texts of what
    was compiled."""

    def __init__(
        self,
        chip: str,
        max_instructions: int,
        seed: int | None,
        sum_order: int | None,
        threads: int,
        multiprocessors: int | None = None,
    ) -> None:
        self.chip = chip
        self.launches: list[JitLaunch] = []
        self.texts: list[str] = []
        self._session = _C.EmulatorSession(chip, max_instructions, seed, sum_order, threads, multiprocessors)
        self._options = max_instructions, sum_order, threads
        self._memory: list[Allocation] = []
        self._held: list[Any] = []
        self._lent: dict[int, Allocation] = {}  # by the address of the storage itself
        self._numbers = itertools.count()
        self._changes = 0
        self._holding = 0
        self.is_open = False

    def use(self, *tensors: Any, **named: Any) -> None:
        """Adds CPU tensors and NumPy arrays to the memory that kernels may use: exactly their bytes, those of read-only
        arrays for reading only. Names are for messages and for counts by tensor."""
        unnamed = [(f"tensor {next(self._numbers)}", one) for one in tensors]
        for name, value in [*unnamed, *named.items()]:
            self._memory.append(allocation(name, value))
            self._held.append(value)
        self._tell_memory()

    def lend(self, storage: torch.UntypedStorage, start: int = 0, size: int | None = None) -> None:
        """Adds a storage of the CPU, or `size` of its bytes from `start`, to the memory that kernels may use, for as
        long as it lives. Once more for the same storage, the new bytes are in the place of the old ones."""
        key = storage._cdata
        known = self._lent.get(key)
        name = known.name if known else f"tensor {next(self._numbers)}"
        address = storage.data_ptr() + start
        lent = Allocation(address, storage.nbytes() - start if size is None else size, True, name)
        if lent == known:
            return
        if known is None:
            weakref.finalize(storage, _take_back, weakref.ref(self), key).atexit = False
            if self._holding:
                self._held.append(storage)
        self._lent[key] = lent
        self._tell_memory()

    def lent(self, storage: torch.UntypedStorage) -> tuple[int, int]:
        """The address and the number of bytes that kernels may use of a storage; all of it, if it was not lent."""
        known = self._lent.get(storage._cdata)
        return (known.address, known.bytes) if known else (storage.data_ptr(), storage.nbytes())

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Within the block what is lent lives on: launches are kept, and executed later than their calls return."""
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1

    def forget(self) -> None:
        """Takes all memory away, before other tensors are used."""
        self._memory, self._held = [], []
        self._lent.clear()
        self._numbers = itertools.count()
        self._tell_memory()

    def _tell_memory(self) -> None:
        self._changes += 1
        changes = 0
        while changes != self._changes:  # storages may die meanwhile
            changes = self._changes
            self._session.set_memory([*self._memory, *self._lent.values()])

    def schedule(self, seed: int | None) -> None:
        """The seed of the launches from now on; None: warps in turn, asynchronous work as late as it can."""
        limit, sum_order, threads = self._options
        self._session.set_options(limit, seed, sum_order, threads)

    def run(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> list[JitLaunch]:
        """Calls a compiled function, or one that calls such, and returns its launches.

        Raises EmulatorFault, PtxError, UnsupportedPtx and ValueError as `run_ptx`, for the first launch that failed.
        Nothing runs in the session after it, as on a device: later calls raise RuntimeError, whose cause it is.
        """
        self._refuse_after_a_failure()
        try:
            function(*arguments, **keywords)
        except Exception as error:
            self._raise_failure(error)
            raise
        self._raise_failure(None)
        return self._take()

    def run_together(self, calls: Sequence[Callable[[], Any]]) -> list[JitLaunch]:
        """Makes several calls, each as if on a device of its own, and executes what they launch at the same time, so
        that kernels may wait for each other: the first launch of every call together, then the second. All devices may
        use all memory.

        calls: functions without arguments. Raises as `run`.
        """
        self._refuse_after_a_failure()
        self._session.begin_together()
        rounds: list[list[int]] = []
        try:
            with self.holding():
                for call in calls:
                    before = len(self._session.kept_streams())
                    call()
                    for step, number in enumerate(range(before, len(self._session.kept_streams()))):
                        if step == len(rounds):
                            rounds.append([])
                        rounds[step].append(number)
                self._raise_failure(None)
                self._session.run_together(rounds)
        except Exception as error:
            self._raise_failure(error)
            raise
        finally:
            self._session.forget_together()
        return self._take()

    @contextlib.contextmanager
    def in_this_thread(self) -> Iterator[None]:
        """Within the block compiled functions run in the session in this thread, too, which is not that of `jit`.

        One thread at a time may compile or call.
        """
        self._session.enter()
        try:
            yield
        finally:
            self._session.leave()

    def _take(self) -> list[JitLaunch]:
        taken = [JitLaunch(name, report_of(counters)) for name, counters in self._session.take_launches()]
        self.launches += taken
        return taken

    def _refuse_after_a_failure(self) -> None:
        try:
            self._raise_failure(None)
        except Exception as failure:
            raise RuntimeError(
                "an earlier launch of this session failed, so nothing runs in it any more; open a new session "
                f"(`with jit(...)`). The first failure: {failure}"
            ) from failure

    def _raise_failure(self, cause: BaseException | None) -> None:
        try:
            with told():
                self._session.rethrow()
        except Exception as failure:
            raise failure from cause

    def _add_module(self, code: bytes, ptx: str) -> None:
        units.load_for(ptx)
        self.texts.append(ptx)
        self._session.add_module(code, ptx)


def _take_back(session: weakref.ref[JitSession], key: int) -> None:
    """Of a storage that has died."""
    owner = session()
    if owner is not None and owner._lent.pop(key, None) is not None:
        owner._tell_memory()


@contextlib.contextmanager
def jit(
    chip: ChipLike,
    *,
    memory: Sequence[Any] | Mapping[str, Any] = (),
    seed: int | None = None,
    sum_order: int | None = None,
    max_instructions: int = MAX_INSTRUCTIONS,
    threads: int = 1,
    multiprocessors: int | None = None,
) -> Iterator[JitSession]:
    """Within the block, CuTe-DSL compiles for an emulated chip, and this thread's compiled functions run on it.

    The functions are compiled as ever (`cute.compile`, or by calling one of `cute.jit`) and called with CPU tensors,
    `cute.runtime.make_ptr` of their addresses, and a null stream (`cuda.CUstream(0)`); `JitSession.run` calls them.
    Their host launchers run as they are. Everything has to be compiled within the block. No GPU, driver or CUDA library
    is needed, but CuTe-DSL itself and a C compiler that links; x86-64 only.

    chip, multiprocessors: as in `run_ptx`. memory: tensors and arrays that kernels may use, more by
    `JitSession.use`: whatever a kernel touches beside them is out of bounds.
    seed, sum_order, max_instructions, threads: as in `run_ptx`.

    Raises ImportError without CuTe-DSL, RuntimeError without a C compiler and in a process that has loaded FlyDSL,
    ValueError for a chip that is not emulated, RuntimeError for a session within another one of the thread's.
    """
    from msa_ops.build.toolchain import refuse_beside  # `python -m msa_ops.build.toolchain` wants to be the first

    refuse_beside("flydsl", "CuTe-DSL")
    try:
        from cutlass._mlir._mlir_libs._cutlass_ir import _execution_engine
        from cutlass.base_dsl import compiler, jit_executor
        from cutlass.cute import runtime
        from cutlass.cutlass_dsl import CuTeDSL, cuda_jit_executor
        from cutlass.cutlass_dsl.cutlass import CuteExperimentalDSL
    except ModuleNotFoundError as error:
        raise ImportError(f"jit needs CuTe-DSL: pip install 'msa-ops[build]' ({error})") from error

    arch, multiprocessors = device(chip, multiprocessors)
    session = JitSession(arch, max_instructions, seed, sum_order, threads, multiprocessors)
    session.use(**memory) if isinstance(memory, Mapping) else session.use(*memory)

    read_artifacts = jit_executor.JitFunctionArtifacts.__post_init__

    def read_and_tell(artifacts: Any) -> None:
        read_artifacts(artifacts)
        if isinstance(artifacts.CUBIN, bytes) and artifacts.PTX is not None:
            session._add_module(artifacts.CUBIN, artifacts.PTX.rstrip("\0"))

    make_tensor = runtime._Tensor.__init__

    def make_global_tensor(tensor: Any, source: Any, *arguments: Any, **keywords: Any) -> None:
        if keywords.get("enable_tvm_ffi") and hasattr(source, "__dlpack__"):
            source = _OnDevice(source)
        make_tensor(tensor, source, *arguments, **keywords)
        _as_device_memory(tensor._dlpack_data)

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as patches:
        libraries = [one for one in (CuTeDSL._get_dsl().envar.shared_libs or "").split(os.pathsep) if one]

        for library in libraries:  # the exporter looks for what the object calls among the symbols of the process
            ctypes.CDLL(library, ctypes.RTLD_GLOBAL)

        class OwnEngine(_Engine):
            def __init__(self, code: bytes) -> None:
                super().__init__(code, Path(folder), libraries)

        def engine_of_module(_: Any, module: Any, *__: Any, **___: Any) -> OwnEngine:
            return OwnEngine(_host_object(module, Path(folder)))

        patches.enter_context(mock.patch.dict(os.environ, {"CUTE_DSL_ARCH": arch}))
        for dsl in {id(one): one for one in (CuTeDSL._get_dsl(), CuteExperimentalDSL._get_dsl())}.values():
            settings = type(dsl.envar)(dsl.envar.prefix)
            settings.arch, settings.dump_dir = arch, folder
            settings.keep_ptx = settings.keep_cubin = settings.no_cache = True
            patches.enter_context(mock.patch.object(dsl, "envar", settings))
        for owner, name, replacement in (
            (jit_executor.JitFunctionArtifacts, "__post_init__", read_and_tell),
            (runtime._Tensor, "__init__", make_global_tensor),
            (compiler.Compiler, "jit", engine_of_module),
            (_execution_engine, "BinaryExecutionEngine", lambda code, *_: OwnEngine(code)),
            (cuda_jit_executor.CudaDialectJitCompiledFunction, "num_devices", 1),
        ):
            patches.enter_context(mock.patch.object(owner, name, replacement))
        if importlib.util.find_spec("tvm_ffi") is not None:
            patches.enter_context(_tvm_ffi_takes_cpu_tensors())
        session._session.enter()
        session.is_open = True
        try:
            yield session
        finally:
            session.is_open = False
            session._session.leave()


def _as_device_memory(capsule: Any) -> None:
    """Lets a DLPack capsule say that its memory is a CUDA device's, so that kernels for it are those for a GPU's."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    if type(capsule).__name__ != "PyCapsule":
        return
    name = api.PyCapsule_GetName(capsule)
    # DLManagedTensor begins with the tensor: its address, then the kind of device. DLManagedTensorVersioned has a
    # version, two pointers and flags before it.
    start = {b"dltensor": 0, b"dltensor_versioned": 32}.get(name)
    if start is not None:
        device = api.PyCapsule_GetPointer(capsule, name) + start + ctypes.sizeof(ctypes.c_void_p)
        ctypes.c_int32.from_address(device).value = _CUDA_DEVICE


@contextlib.contextmanager
def _tvm_ffi_takes_cpu_tensors() -> Iterator[None]:
    """Lets functions compiled for TVM FFI (`--enable-tvm-ffi`) have CPU tensors where they want those of a GPU."""
    provider, tvm_ffi = _native("cutlass.cutlass_dsl.tvm_ffi_provider"), _native("tvm_ffi")

    def of_device(value: Any) -> Any:
        if isinstance(value, tuple | list):
            members = [of_device(one) for one in value]
            return type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
        if hasattr(value, "__dlpack__") and not isinstance(value, tvm_ffi.Object):
            return tvm_ffi.from_dlpack(_OnDevice(value))
        return value

    def calling(call: Callable[..., Any]) -> Callable[..., Any]:
        def with_device_memory(function: Any, *arguments: Any, **keywords: Any) -> Any:
            named = {name: of_device(value) for name, value in keywords.items()}
            return call(function, *map(of_device, arguments), **named)

        return with_device_memory

    with contextlib.ExitStack() as patches:
        for kind in (provider.TVMFFIJitCompiledFunction, provider.TVMFFIJitCompiledFunctionWithKwargs):
            patches.enter_context(mock.patch.object(kind, "__call__", calling(kind.__call__)))
        yield


class _OnDevice:
    """A CPU tensor that says to DLPack that it is on a CUDA device."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        detached = self._tensor.detach() if hasattr(self._tensor, "detach") else self._tensor
        capsule = detached.__dlpack__()
        _as_device_memory(capsule)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA_DEVICE, 0


def _native(name: str) -> Any:
    """A module whose types mypy cannot see."""
    return importlib.import_module(name)


def _host_object(module: Any, folder: Path) -> bytes:
    """The object file of a lowered module, as CuTe-DSL exports one, without changing the module."""
    ir, exporter = _native("cutlass._mlir.ir"), _native("cutlass._mlir._mlir_libs._cutlass_ir")._mlirExecutionEngine

    with module.context, ir.Location.unknown():
        copy = ir.Module.parse(module.operation.get_asm(binary=True))
        names = []

        def visit(op: Any) -> Any:
            if op.name == "gpu.binary":  # the code is in a global variable, too
                op.erase()
            elif op.name == "llvm.func":
                names.append(ir.StringAttr(op.attributes["sym_name"]).value)
            return ir.WalkResult.ADVANCE

        copy.operation.walk(visit)
        if "gpu.container_module" in copy.operation.attributes:
            del copy.operation.attributes["gpu.container_module"]
        launchers = [name.removeprefix("_mlir_ciface_") for name in names if name.startswith("_mlir_ciface_")]
        path = folder / "module.o"
        exporter.dump_object_file_pic(
            copy, str(path), launchers[0] if launchers else names[0], host_triple="", host_cpu="", host_features=""
        )
        return path.read_bytes()


class _Engine:
    """Host code of a compiled function, in the place of the engine in which CuTe-DSL would run it: that one brings its
    own CUDA runtime. It stays in the process, as any shared library that was loaded."""

    def __init__(self, code: bytes, folder: Path, libraries: Sequence[str]) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            path = Path(own) / "host.o"
            path.write_bytes(code)
            self._library = linked(path, libraries=libraries)

    def raw_lookup(self, name: str) -> int | None:
        """The address of a function that takes an array of the addresses of its arguments."""
        return self._address(f"_mlir_{name}")

    def lookup(self, name: str) -> Any:
        """The launcher of that name; for names that are whole, the address."""
        address = self._address(f"_mlir__mlir_ciface_{name}")
        if address is not None:
            return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
        return self._address(name)

    def _address(self, symbol: str) -> int | None:
        try:  # not getattr, for which names like __this__ are Python's own
            return ctypes.cast(self._library[symbol], ctypes.c_void_p).value
        except AttributeError:
            return None
