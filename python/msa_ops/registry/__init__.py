"""The op registry: which backends exist, which one serves a call on which chip, and why."""

from msa_ops.registry.backend import API_VERSION, Backend, Band, Numerics
from msa_ops.registry.errors import (
    BackendLoadError,
    BackendRefusedError,
    NoBackendError,
    RegistrationError,
    UnknownBackendError,
    UnknownOpError,
)
from msa_ops.registry.explain import Explanation, Verdict, explain
from msa_ops.registry.limits import Between, MultipleOf, OneOf
from msa_ops.registry.op import Cost, OpSpec, Tolerance
from msa_ops.registry.overrides import use_backend
from msa_ops.registry.platform import FEATURES, SIMULATED, Platform
from msa_ops.registry.platform import parse as parse_platform
from msa_ops.registry.refusal import Code, Refusal
from msa_ops.registry.store import STORE
from msa_ops.registry.workspace import workspace_bytes

__all__ = [
    "API_VERSION",
    "FEATURES",
    "SIMULATED",
    "STORE",
    "Backend",
    "BackendLoadError",
    "BackendRefusedError",
    "Band",
    "Between",
    "Code",
    "Cost",
    "Explanation",
    "MultipleOf",
    "NoBackendError",
    "Numerics",
    "OneOf",
    "OpSpec",
    "Platform",
    "Refusal",
    "RegistrationError",
    "Tolerance",
    "UnknownBackendError",
    "UnknownOpError",
    "Verdict",
    "explain",
    "parse_platform",
    "use_backend",
    "workspace_bytes",
]
