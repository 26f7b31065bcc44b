"""Records of the backends with compiled AMD kernels. Metadata only."""

from __future__ import annotations

from msa_ops.registry import STORE, Backend, Band, Numerics, OneOf

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
    Backend(
        op="indexer",
        name="flydsl_gfx950",
        target="msa_ops.amd.indexer:gfx950",
        archs=frozenset({"gfx950"}),
        band=Band.SPECIALIZED,
        limits=(("q_dtype", OneOf("float8_e4m3fn")), ("index_format", OneOf("nvfp4"))),
        numerics=Numerics(rounding=("e4m3",)),
        compiled=True,
        workspace="msa_ops.amd.indexer:workspace",
    ),
)


def register() -> None:
    for backend in BACKENDS:
        STORE.add_backend(backend)
