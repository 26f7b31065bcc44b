"""The record of one backend of one op: metadata only. Its code is imported when it is first chosen."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from msa_ops.registry.errors import BackendLoadError, RegistrationError
from msa_ops.registry.limits import Limit
from msa_ops.registry.platform import Platform, format_version
from msa_ops.registry.refusal import Code, Refusal

OWN = "msa_ops"
"""Provider of the backends of this package."""

API_VERSION = 1
"""Version of the calling convention between the registry and a backend; a plugin states the one it speaks."""

ANY_ARCH = "*"
"""In `archs`: code that runs on every chip that torch runs on."""

Predicate = Callable[[Platform, Any], Iterable[Refusal]]


ROUNDINGS = ("exact", "e4m3")


class Band(IntEnum):
    """Priority bands; a higher band wins. Within a band a higher `order` wins, then the name."""

    REFERENCE = 0
    PORTABLE = 1
    PERFORMANT = 2
    SPECIALIZED = 3
    PLUGIN = 4


@dataclass(frozen=True)
class Numerics:
    """What a result may be compared with.

    `rounding`: modes of a dequantised NVFP4 value that the backend implements ("exact", "e4m3"); a call that wants
    another is refused.
    `bitwise_with`: names of backends that give the same bits. Otherwise the op's tolerance applies.
    """

    rounding: tuple[str, ...] = ROUNDINGS
    bitwise_with: tuple[str, ...] = ()


@dataclass(frozen=True)
class Backend:
    """One way to run one op.

    `target` is "module:function", called as `function(args, outs)`: the op's argument record and the tuple of
    tensors to fill. With `functional=True` it is called as `function(args)` and returns new tensors.
    `limits` maps facts of the op to what is accepted; `predicate` gives further refusals.
    `automatic` holds the archs on which it may be chosen without being named (default: all of `archs`).
    `requires` maps "cuda", "rocm" or a Python distribution to the lowest version.
    `compiled`: needs kernels that a build of this package may leave out.
    `workspace` is "module:function", called as `function(platform, facts)`, giving bytes.
    """

    op: str
    name: str
    target: str
    archs: frozenset[str]
    band: Band
    order: int = 0
    features: frozenset[str] = frozenset()
    requires: tuple[tuple[str, tuple[int, ...]], ...] = ()
    limits: tuple[tuple[str, Limit], ...] = ()
    predicate: Predicate | None = None
    automatic: frozenset[str] | None = None
    numerics: Numerics = field(default_factory=Numerics)
    graph_safe: bool = True
    deterministic: bool = True
    functional: bool = False
    compiled: bool = False
    workspace: str | None = None
    provider: str = OWN
    api_version: int = API_VERSION

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_.]*", self.name):
            raise RegistrationError(
                f"backend name {self.name!r}: lower-case letters, digits, '_' and '.', starting with a letter"
            )
        if not re.fullmatch(r"[\w.]+:\w+", self.target):
            raise RegistrationError(f"backend {self.name!r}: target {self.target!r} is not 'module:function'")
        if self.api_version != API_VERSION:
            raise RegistrationError(
                f"backend {self.name!r} speaks API version {self.api_version}; this msa_ops speaks {API_VERSION}"
            )
        for arch in self.archs:
            if re.fullmatch(r"sm_(9\d|1\d\d)", arch):
                raise RegistrationError(f"backend {self.name!r}: arch {arch!r}; accepted: with its suffix, as {arch}a")
        if not self.archs:
            raise RegistrationError(f"backend {self.name!r}: archs is empty")

    @property
    def sort_key(self) -> tuple[int, int, str]:
        return (-self.band, -self.order, self.name)

    @property
    def needs_facts(self) -> bool:
        """False if no property of the call can make the backend refuse."""
        return bool(self.limits) or self.predicate is not None or not set(ROUNDINGS) <= set(self.numerics.rounding)

    def platform_refusals(self, platform: Platform) -> tuple[Refusal, ...]:
        """Reasons that hold for every call on the platform."""
        refusals = []
        own_arch = platform.arch in self.archs or ANY_ARCH in self.archs
        if not own_arch:
            refusals.append(
                Refusal(
                    Code.ARCH,
                    f"runs on {', '.join(sorted(self.archs))}; the platform is {platform.arch}",
                    "see `msa-ops list --support` for the backends of this chip",
                )
            )
        elif self.compiled and not _is_built(self.op, platform.arch):
            refusals.append(
                Refusal(
                    Code.NOT_BUILT,
                    f"this build of msa_ops holds no {platform.arch} kernels of {self.op}",
                    "install a wheel that was built with them; see `make wheel`",
                )
            )
        for feature in sorted(self.features - platform.features) if own_arch else ():  # else: said already
            refusals.append(
                Refusal(Code.FEATURE, f"needs {feature}, which {platform.arch} lacks", "run on a chip that has it")
            )
        for name, minimum in self.requires:
            refusals.extend(_version_refusal(name, minimum, platform))
        return tuple(refusals)

    def automatic_refusals(self, platform: Platform) -> tuple[Refusal, ...]:
        if self.automatic is None or platform.arch in self.automatic:
            return ()
        return (
            Refusal(
                Code.NOT_AUTOMATIC,
                f"is not chosen by itself on {platform.arch}",
                f'ask for it: backend="{self.name}" or MSA_OPS_BACKEND={self.op}={self.name}',
            ),
        )

    def call_refusals(self, platform: Platform, facts: Any) -> tuple[Refusal, ...]:
        """Reasons that depend on the call. A predicate of another package that raises is a reason too."""
        try:
            return tuple(self._call_refusals(platform, facts))
        except Exception as error:
            if self.provider == OWN:
                raise
            text = f"the predicate of {self.name} failed: {type(error).__name__}: {error}"
            return (Refusal(Code.PLUGIN, text, f"repair or uninstall {self.provider}"),)

    def _call_refusals(self, platform: Platform, facts: Any) -> Iterable[Refusal]:
        for name, limit in self.limits:
            value = getattr(facts, name)
            if not limit.accepts(value):
                yield Refusal(Code.ARGUMENT, f"{name} is {value}; accepted: {limit}", f"change {name} or the backend")
        rounding = getattr(facts, "rounding", None)
        if rounding not in (None, *self.numerics.rounding) and _format(facts) == "nvfp4":
            modes = ", ".join(self.numerics.rounding) or "none"
            yield Refusal(
                Code.ARGUMENT, f"rounds dequantised values as {modes}; the call wants {rounding}", "change rounding"
            )
        if self.predicate is not None:
            yield from self.predicate(platform, facts)

    def load(self) -> Callable[..., Any]:
        """The function behind `target`. Raises BackendLoadError."""
        return _load(self.target, self.name)

    def workspace_bytes(self, platform: Platform, facts: Any) -> int:
        return int(_load(self.workspace, self.name)(platform, facts)) if self.workspace else 0

    def source_hash(self) -> str:
        """SHA-256 (first 16 hex digits) of the target module's source, without importing it."""
        module = self.target.partition(":")[0]
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            spec = None
        if spec is None or spec.origin is None or not Path(spec.origin).is_file():
            return "unknown"
        return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()[:16]


@functools.cache
def built_kernels() -> frozenset[tuple[str, str]]:
    """(op, arch) of the compiled kernels in this build."""
    from msa_ops import _C

    return frozenset((name.partition("__")[0], arch) for name, arch in _C.compiled_kernels() + _C.code_objects())


def _format(facts: Any) -> str:
    """Format of the values that an op with a rounding mode dequantises; only NVFP4 is rounded."""
    return str(getattr(facts, "kv_format", getattr(facts, "index_format", "nvfp4")))


def _is_built(op: str, arch: str) -> bool:
    return (op, arch) in built_kernels()


@functools.cache
def _load(target: str, name: str) -> Callable[..., Any]:
    module, _, attribute = target.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise BackendLoadError(f"backend {name!r}: {target} cannot be loaded: {error}") from error
    return function


def _version_refusal(name: str, minimum: tuple[int, ...], platform: Platform) -> Iterable[Refusal]:
    wanted = format_version(minimum)
    if name in ("cuda", "rocm"):
        found = platform.version(name)
        if found is None:
            yield Refusal(
                Code.VERSION, f"needs {name} >= {wanted}; {platform.arch} has none", f"install {name} {wanted}"
            )
        elif found < minimum:
            yield Refusal(
                Code.VERSION,
                f"needs {name} >= {wanted}; the platform has {format_version(found)}",
                f"install {name} {wanted} or newer",
            )
        return
    found = _distribution_version(name)
    if found is None:
        yield Refusal(
            Code.PACKAGE, f"needs the package {name}, which is not installed", f"pip install '{name}>={wanted}'"
        )
    elif found < minimum:
        yield Refusal(
            Code.VERSION,
            f"needs {name} >= {wanted}; {format_version(found)} is installed",
            f"pip install '{name}>={wanted}'",
        )


@functools.cache
def _distribution_version(name: str) -> tuple[int, ...] | None:
    try:
        text = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+")[0])[:3])
