"""Records of the backends with compiled AMD kernels. Metadata only."""

from __future__ import annotations

from msa_ops.registry import STORE, Backend, Band, OneOf

BACKENDS = (
    Backend(
        op="quantize_nvfp4",
        name="flydsl_gfx950",
        target="msa_ops.amd.quantize_nvfp4:gfx950",
        archs=frozenset({"gfx950"}),
        band=Band.SPECIALIZED,
        limits=(("scale_layout", OneOf("linear")), ("contiguous", OneOf(True))),
        compiled=True,
    ),
)


def register() -> None:
    for backend in BACKENDS:
        STORE.add_backend(backend)
