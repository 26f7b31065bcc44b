"""The chip that a call runs on, real or simulated. Every predicate of the registry takes one of these.

Capabilities are a set per architecture, never an ordering of architecture numbers: QMUL4 exists on sm_100a
and sm_103a and is absent on sm_107a.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace

import torch

from msa_ops.registry import virtual

Version = tuple[int, ...]


@dataclass(frozen=True, eq=False)  # interned by `parse` and `of_device`, so identity is equality
class Platform:
    """One chip as the registry sees it.

    `arch` is a compiler target ("sm_100a", "gfx950", "cpu"); `features` are the names of `FEATURES`;
    `versions` holds software versions that predicates may require ("cuda", "rocm"); sizes are in bytes for
    shared memory and in columns for tensor memory. `simulated` platforms can be explained, and emulated if the emulator
    knows the chip.
    """

    arch: str
    vendor: str
    chips: str
    features: frozenset[str]
    versions: tuple[tuple[str, Version], ...] = ()
    multiprocessors: int = 0
    shared_memory: int = 0
    tensor_memory_columns: int = 0
    simulated: bool = True

    def version(self, name: str) -> Version | None:
        return dict(self.versions).get(name)

    def __str__(self) -> str:
        versions = "".join(f", {name} {format_version(version)}" for name, version in self.versions)
        return f"{self.arch}{versions}" + (" (simulated)" if self.simulated else "")


FEATURES: dict[str, str] = {
    "tma": "bulk tensor copies",
    "wgmma": "warp-group MMA of Hopper",
    "fp8_mma": "FP8 matrix instructions on OCP E4M3",
    "tcgen05": "fifth-generation tensor cores with tensor memory",
    "fp4_mma": "block-scaled FP4 matrix instructions",
    "qmul4": "E2M1 x E4M3 multiply giving four E4M3 (mul.e4m3x4.e2m1x4.e4m3x4)",
    "f16_dequant": "conversion of packed E2M1 to FP16",
    "ffma2": "packed two-lane FP32 FMA",
    "fhfma2": "packed FP32 += FP16 x FP32 FMA",
    "ex2_f16x2": "two FP16 exponentials in one instruction",
    "redux_f32": "warp reduction of FP32 maxima",
    "tcgen05_ld_red": "tensor memory load with reduction",
    "fp8_k64": "dense FP8 MMA with K = 64",
    "i8_mma": "integer kind of tcgen05",
    "mfma": "matrix instructions of CDNA",
    "mfma_f8f6f4": "MFMA on FP8, FP6 and FP4 with E8M0 scales",
    "lds_transpose_read": "transposing reads from LDS",
}

_BLACKWELL = frozenset({"tma", "fp8_mma", "tcgen05", "fp4_mma", "qmul4", "f16_dequant", "ffma2", "redux_f32"})

_CHIPS: dict[str, Platform] = {
    chip.arch: chip
    for chip in (
        Platform("cpu", "cpu", "any", frozenset()),
        Platform(
            "sm_90a", "nvidia", "H100, H200", frozenset({"tma", "wgmma", "fp8_mma"}), (("cuda", (13, 5)),),
            multiprocessors=132, shared_memory=232_448,
        ),
        Platform(
            "sm_100a", "nvidia", "B200, GB200", _BLACKWELL | {"i8_mma"}, (("cuda", (13, 5)),),
            multiprocessors=148, shared_memory=232_448, tensor_memory_columns=512,
        ),
        Platform(
            "sm_103a", "nvidia", "B300, GB300", _BLACKWELL | {"ex2_f16x2", "tcgen05_ld_red"},
            (("cuda", (13, 5)),), multiprocessors=148, shared_memory=232_448, tensor_memory_columns=512,
        ),
        Platform(
            "sm_107a", "nvidia", "Rubin",
            _BLACKWELL - {"qmul4"} | {"fhfma2", "ex2_f16x2", "tcgen05_ld_red", "fp8_k64"},
            (("cuda", (13, 5)),), multiprocessors=224, shared_memory=334_848, tensor_memory_columns=576,
        ),
        Platform(
            "gfx950", "amd", "MI350X, MI355X",
            frozenset({"fp8_mma", "mfma", "mfma_f8f6f4", "lds_transpose_read"}), (("rocm", (7, 0)),),
            multiprocessors=256, shared_memory=163_840,
        ),
    )
}  # fmt: skip

SIMULATED = tuple(_CHIPS)
"""Names that `Platform.parse` knows."""


_ARCH_OF_CHIP = {
    name.lower(): chip.arch for chip in _CHIPS.values() if chip.arch != "cpu" for name in chip.chips.split(", ")
}


def format_version(version: Version) -> str:
    return ".".join(map(str, version))


def parse_version(text: str) -> Version:
    if not re.fullmatch(r"\d+(\.\d+)*", text):
        raise ValueError(f"version: {text!r} is not of the form 13.4")
    return tuple(int(part) for part in text.split("."))


@functools.cache
def parse(text: str) -> Platform:
    """A simulated platform from its arch or chip and, optionally, versions: "sm_103a", "B300", "sm_103a, cuda=13.4".

    Raises ValueError for an unknown chip or version name.
    """
    name, *settings = [part.strip() for part in text.split(",")]
    arch = _ARCH_OF_CHIP.get(name.lower(), name)
    if arch not in _CHIPS:
        raise ValueError(f"platform: unknown chip {name!r}; known: {', '.join([*SIMULATED, *_ARCH_OF_CHIP])}")
    chip = _CHIPS[arch]
    if not settings:
        return chip
    versions = dict(chip.versions)
    for setting in settings:
        name, _, value = setting.replace(" ", "=", 1).partition("=")
        if name not in versions:
            known = ", ".join(versions) or "none"
            raise ValueError(f"platform: {arch} has no version {name!r}; versions that can be set: {known}")
        versions[name] = parse_version(value)
    return replace(chip, versions=tuple(versions.items()))


@functools.cache
def with_multiprocessors(chip: Platform, multiprocessors: int) -> Platform:
    """A smaller or larger chip of the same kind."""
    return replace(chip, multiprocessors=multiprocessors)


CPU = replace(_CHIPS["cpu"], simulated=False)


def of_device(device: torch.device) -> Platform:
    """The platform behind a torch device: that of the machine, or for the CPU the chip that is emulated in it.

    Asks torch.cuda only for CUDA (or HIP) devices.
    """
    if device.type == "cpu":
        chip = virtual.current()
        return CPU if chip is None else chip.platform
    if device.type == "cuda":
        return _of_cuda_device(device.index if device.index is not None else torch.cuda.current_device())
    raise NotImplementedError(f"device: {device.type!r} tensors are not supported; accepted: cpu, cuda")


@functools.cache
def this_machine() -> Platform:
    """The platform of the first GPU of this machine, else the CPU. Creates no CUDA context."""
    from msa_ops import _C

    driver = _C.query_cuda_driver()
    if not driver.devices:
        return CPU
    first = driver.devices[0]
    return _nvidia(first.major, first.minor, first.name, first.multiprocessors, driver.version)


@functools.cache
def _of_cuda_device(index: int) -> Platform:
    properties = torch.cuda.get_device_properties(index)
    if torch.version.hip:
        arch = properties.gcnArchName.split(":")[0]
        version = re.match(r"\d+(\.\d+)*", torch.version.hip)
        versions = (("rocm", parse_version(version.group())),) if version else ()
        return _real(arch, "amd", properties.name, properties.multi_processor_count, versions)
    from msa_ops import _C

    return _nvidia(
        properties.major,
        properties.minor,
        properties.name,
        properties.multi_processor_count,
        _C.query_cuda_driver().version,
    )


def _nvidia(major: int, minor: int, name: str, multiprocessors: int, driver: int) -> Platform:
    arch = f"sm_{major}{minor}" + ("a" if major >= 9 else "")
    return _real(arch, "nvidia", name, multiprocessors, (("cuda", (driver // 1000, driver % 1000 // 10)),))


def _real(
    arch: str, vendor: str, name: str, multiprocessors: int, versions: tuple[tuple[str, Version], ...]
) -> Platform:
    """A chip of this machine; what the driver does not tell comes from the table, if the chip is in it."""
    known = _CHIPS.get(arch, Platform(arch, vendor, name, frozenset()))
    return replace(known, chips=name, versions=versions, multiprocessors=multiprocessors, simulated=False)
