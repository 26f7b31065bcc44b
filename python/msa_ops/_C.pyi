from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

AllocationTuple: TypeAlias = tuple[int, int, bool, str, int, Sequence[tuple[int, int]]]
PendingTuple: TypeAlias = tuple[int, int, int, int, Sequence[tuple[int, int]]]

class CudaDevice:
    ordinal: int
    name: str
    major: int
    minor: int
    multiprocessors: int
    shared_memory_per_block_optin: int

class CudaDriver:
    version: int
    error: str
    devices: list[CudaDevice]

def query_cuda_driver() -> CudaDriver: ...

class RecordedLaunch:
    kernel: str
    grid: list[int]
    block: list[int]
    cluster: list[int]
    dynamic_shared_memory: int

def compiled_kernels() -> list[tuple[str, str]]: ...
def find_kernel(name: str) -> int: ...
def launch_kernel(position: int, device: int, stream: int, arguments: Sequence[int]) -> None: ...
def clear_memory(device: int, stream: int, address: int, num_bytes: int) -> None: ...

CLEAR: int

def record_launch(position: int, arguments: Sequence[int]) -> list[RecordedLaunch]: ...

class CallReplays:
    def __init__(
        self, reader: SignatureReader, names: Sequence[str], written: Sequence[str], alignment: int
    ) -> None: ...
    def remember(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outs: tuple[Any, ...] | None,
        wish: str | None,
        grad_enabled: bool,
        generation: int,
        made: tuple[Any, ...],
        made_workspace: Any,
        device: int,
        launches: Sequence[tuple[int, tuple[int, ...]]],
        make: ResultMaker | Callable[[], tuple[Any, ...]] | None,
    ) -> bool: ...
    def __len__(self) -> int: ...

class _Registry(Protocol):
    generation: int

class ResultMaker:
    @staticmethod
    def of(results: tuple[Any, ...]) -> ResultMaker | None: ...
    def make(self) -> tuple[Any, ...] | None: ...

class TorchState:
    def __init__(self, obstacles: list[Callable[[], object]], grad_enabled: Callable[[], bool]) -> None: ...
    @staticmethod
    def without_python() -> TorchState | None: ...
    def is_plain(self) -> bool: ...
    def grad_enabled(self) -> bool: ...

def op_entry(
    replays: CallReplays,
    long_way: Callable[..., Any],
    context: ContextVar[Any],
    registry: _Registry,
    state: TorchState,
) -> Callable[..., Any]: ...
def call_without_frames(function: Callable[..., Any], entry: Callable[..., Any]) -> bool: ...

class SignatureReader:
    def __init__(self, tensor_type: type, parameter_type: type) -> None: ...
    def read(
        self,
        record: object,
        names: tuple[str, ...],
        written: tuple[str, ...],
        outs: tuple[object, ...] | None,
        alignment: int,
        grad_enabled: bool,
    ) -> bytes | None: ...

class EmulatorFault(RuntimeError):
    kind: str
    kernel: str
    entry: str  # of PTX
    line: int
    block: tuple[int, int, int]
    warp: int | None
    lane: int | None
    address: int | None
    instruction: str
    source: str | None
    ptx: str | None

class PtxError(ValueError):
    line: int

class UnsupportedPtx(NotImplementedError):
    line: int

class EmulatorCounters:
    warp_instructions: dict[str, int]
    global_bytes_read: int
    global_bytes_written: int
    matrix_flops: dict[str, int]
    tensor_bytes: dict[str, list[int]]
    global_requests: int
    global_sectors: int
    shared_passes: int
    shared_passes_at_least: int
    waits: int
    waits_for: dict[str, int]
    instructions_of_warp: dict[int, int]
    waits_of_warp: dict[int, int]
    bytes_by_space: dict[str, list[int]]
    launches: int
    last_writes: list[tuple[int, int]]
    out_of_range_lanes: int

def code_objects() -> list[tuple[str, str]]: ...
def find_code_object(name: str) -> int: ...
def code_object(position: int) -> dict[str, Any]: ...
def kernel_arguments(position: int, values: Sequence[int]) -> bytes: ...
def launch_code_object(position: int, device: int, stream: int, num_workgroups: int, values: Sequence[int]) -> None: ...
def emulate_ptx(
    ptx: str,
    entry: str,
    grid: Sequence[int],
    block: Sequence[int],
    shared_memory: int,
    parameters: Sequence[bytes],
    allocations: Sequence[AllocationTuple],
    max_instructions: int,
    cluster: Sequence[int] | None = ...,
    chip: str = ...,
    seed: int | None = ...,
    sum_order: int | None = ...,
    threads: int = ...,
    multiprocessors: int | None = ...,
    pending: Sequence[PendingTuple] = ...,
    not_portable: bool = ...,
) -> EmulatorCounters: ...

class Footprint:
    def __init__(self, element: int, steps: Sequence[tuple[int, int]]) -> None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def run(self) -> int: ...
    @property
    def steps(self) -> list[tuple[int, int]]: ...
    def segment(self, offset: int) -> tuple[int, int, bool]: ...

class MulticastRange:
    def __init__(self, bytes: int, copies: Sequence[int], writable: bool) -> None: ...
    @property
    def address(self) -> int: ...

def emulate_on_devices(
    ptx: str,
    entry: str,
    grid: Sequence[int],
    block: Sequence[int],
    shared_memory: int,
    parameters: Sequence[Sequence[bytes]],
    allocations: Sequence[Sequence[AllocationTuple]],
    max_instructions: int,
    cluster: Sequence[int] | None,
    chip: str,
    seed: int | None,
    sum_order: int | None,
    threads: int,
    multiprocessors: int | None = ...,
    not_portable: bool = ...,
) -> list[EmulatorCounters]: ...
def emulate_launch(
    position: int,
    ptx: str,
    allocations: Sequence[AllocationTuple],
    arguments: Sequence[int],
    max_instructions: int,
    chip: str = ...,
    seed: int | None = ...,
    sum_order: int | None = ...,
    threads: int = ...,
    multiprocessors: int | None = ...,
    pending: Sequence[PendingTuple] = ...,
) -> EmulatorCounters: ...

class ObjectFunctions:
    def __init__(self, name: str, init: int, load_to_device: int, launch: int) -> None: ...

def seam_functions() -> dict[str, int]: ...
def emulate_object(
    object: ObjectFunctions,
    modules: Sequence[str],
    arguments: Sequence[bytes],
    allocations: Sequence[AllocationTuple],
    max_instructions: int,
    chip: str,
    seed: int | None,
    sum_order: int | None,
    threads: int,
    multiprocessors: int | None = None,
) -> EmulatorCounters: ...
def emulate_object_on_devices(
    object: ObjectFunctions,
    modules: Sequence[str],
    arguments: Sequence[Sequence[bytes]],
    allocations: Sequence[Sequence[AllocationTuple]],
    max_instructions: int,
    chip: str,
    seed: int | None,
    sum_order: int | None,
    threads: int,
    multiprocessors: int | None = None,
) -> list[EmulatorCounters]: ...

class EmulatorSession:
    def __init__(
        self,
        chip: str,
        max_instructions: int,
        seed: int | None,
        sum_order: int | None,
        threads: int,
        multiprocessors: int | None = None,
    ) -> None: ...
    def enter(self) -> None: ...
    def leave(self) -> None: ...
    def add_module(self, code: bytes, ptx: str) -> None: ...
    def set_memory(self, allocations: Sequence[AllocationTuple]) -> None: ...
    def set_options(self, max_instructions: int, seed: int | None, sum_order: int | None, threads: int) -> None: ...
    def begin_together(self) -> None: ...
    def forget_together(self) -> None: ...
    def run_together(self, rounds: Sequence[Sequence[int]] | None = None) -> None: ...
    def kept_streams(self) -> list[int]: ...
    def take_launches(self) -> list[tuple[str, EmulatorCounters]]: ...
    def rethrow(self) -> None: ...

def encode_tensor_map(
    type: int,
    address: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    steps: Sequence[int],
    swizzle: int,
    atomicity: int,
    nan_outside: bool,
    l2_promotion: int,
) -> bytes: ...
def encode_im2col_map(
    type: int,
    address: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    lower: Sequence[int],
    upper: Sequence[int],
    channels: int,
    pixels: int,
    steps: Sequence[int],
    swizzle: int,
    atomicity: int,
    nan_outside: bool,
    l2_promotion: int,
) -> bytes: ...
def ptx_parameters(ptx: str, entry: str) -> list[tuple[int, str]]: ...
def set_unit_table(name: str, bytes: bytes) -> None: ...
def target_has(target: str, opcode: str) -> bool: ...
def emulated_forms() -> list[tuple[str, str]]: ...
def emulated_opcodes() -> list[str]: ...

class CodeObjectError(ValueError): ...
class UnsupportedGfx950(NotImplementedError): ...

def emulate_code_object(
    code_object: bytes,
    kernel: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    lds: int,
    kernarg: bytes,
    allocations: Sequence[AllocationTuple],
    max_instructions: int,
    seed: int | None,
    uncached: Sequence[tuple[int, int]] = ...,
    accept: Sequence[tuple[str, int, int]] = ...,
) -> EmulatorCounters: ...
def emulate_code_object_on_devices(
    code_object: bytes,
    kernel: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    lds: int,
    kernargs: list[bytes],
    allocations: Sequence[Sequence[AllocationTuple]],
    max_instructions: int,
    seed: int | None,
    uncached: Sequence[tuple[int, int]] = ...,
    accept: Sequence[tuple[str, int, int]] = ...,
) -> list[EmulatorCounters]: ...
def code_object_kernels(code_object: bytes) -> list[dict[str, Any]]: ...
def disassemble_gfx950(code_object: bytes, kernel: str) -> list[tuple[int, int, str]]: ...
def disassemble_gfx950_instruction(code: bytes) -> str: ...
def gfx950_opcodes() -> list[str]: ...
def gfx950_products() -> list[str]: ...
def choose_gfx950_product(name: str) -> None: ...
