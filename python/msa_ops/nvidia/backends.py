"""Records of the backends with compiled NVIDIA kernels. Metadata only."""

from __future__ import annotations

from msa_ops.nvidia import indexer_limits, sparse_attention_limits
from msa_ops.registry import STORE, Backend, Band, Between, Numerics, OneOf

BACKENDS = (
    Backend(
        op="quantize_nvfp4",
        name="cute_sm90",
        target="msa_ops.nvidia.quantize_nvfp4:sm90",
        archs=frozenset({"sm_90a"}),
        band=Band.SPECIALIZED,
        limits=(("scale_layout", OneOf("linear")), ("contiguous", OneOf(True))),
        compiled=True,
    ),
    Backend(
        op="indexer",
        name="cute_sm90",
        target="msa_ops.nvidia.indexer:sm90",
        archs=frozenset({"sm_90a"}),
        band=Band.SPECIALIZED,
        limits=(
            ("q_dtype", OneOf("bfloat16", "float16", "float8_e4m3fn")),
            ("index_format", OneOf("nvfp4", "fp8", "bf16")),
        ),
        predicate=indexer_limits.refusals,
        numerics=Numerics(rounding=("exact",)),
        compiled=True,
        workspace="msa_ops.nvidia.indexer:workspace",
    ),
    *(
        Backend(
            op="indexer",
            name=name,
            target=f"msa_ops.nvidia.indexer:{function}",
            archs=frozenset({"sm_100a", "sm_103a"}),
            band=band,
            features=frozenset({"qmul4"} if function == "sm100" else ()),
            limits=(
                ("q_dtype", OneOf("float8_e4m3fn")),
                ("index_format", OneOf("nvfp4")),
            ),
            numerics=Numerics(rounding=("e4m3",), bitwise_with=(twin,)),
            compiled=True,
            workspace="msa_ops.nvidia.indexer:sm100_workspace",
        )
        for name, function, band, twin in (
            ("cute_sm100", "sm100", Band.SPECIALIZED, "cute_sm100_fp16"),
            ("cute_sm100_fp16", "sm100_fp16", Band.PERFORMANT, "cute_sm100"),
        )
    ),
    Backend(
        op="indexer",
        name="cute_sm90_prefill",
        target="msa_ops.nvidia.indexer_prefill:choose",
        archs=frozenset({"sm_90a"}),
        band=Band.SPECIALIZED,
        order=1,
        limits=(
            ("q_dtype", OneOf("bfloat16", "float16", "float8_e4m3fn")),
            ("index_format", OneOf("nvfp4", "fp8", "bf16")),
            ("rounding", OneOf("exact")),
            ("num_heads", Between(1, 256)),
            ("topk", Between(1, 16)),
        ),
        predicate=indexer_limits.prefill_refusals,
        numerics=Numerics(rounding=("exact",)),
        compiled=True,
        workspace="msa_ops.nvidia.indexer_prefill:workspace",
    ),
    Backend(
        op="indexer_scores",
        name="cute_sm90",
        target="msa_ops.nvidia.indexer_prefill:score",
        archs=frozenset({"sm_90a"}),
        band=Band.SPECIALIZED,
        limits=(
            ("q_dtype", OneOf("bfloat16", "float16", "float8_e4m3fn")),
            ("index_format", OneOf("nvfp4", "fp8", "bf16")),
            ("rounding", OneOf("exact")),
            ("num_heads", Between(1, 256)),
        ),
        predicate=indexer_limits.refusals,
        numerics=Numerics(rounding=("exact",)),
        compiled=True,
    ),
    Backend(
        op="qk_norm_rope_insert",
        name="cute_sm90",
        target="msa_ops.nvidia.qk_norm_rope_insert:sm90",
        archs=frozenset({"sm_90a"}),
        band=Band.SPECIALIZED,
        limits=(("rotary_dim", OneOf(64)),),
        compiled=True,
    ),
    Backend(
        op="select_blocks",
        name="cute_sm90",
        target="msa_ops.nvidia.select_blocks:sm90",
        archs=frozenset({"sm_90a"}),
        band=Band.SPECIALIZED,
        limits=(("max_blocks", Between(0, 16_384)),),
        compiled=True,
    ),
    Backend(
        op="sparse_attention",
        name="cute_sm90",
        target="msa_ops.nvidia.sparse_attention:sm90",
        archs=frozenset({"sm_90a"}),
        band=Band.SPECIALIZED,
        limits=(
            ("q_dtype", OneOf("bfloat16", "float16", "float8_e4m3fn")),
            ("kv_format", OneOf("nvfp4", "fp8", "bf16")),
        ),
        predicate=sparse_attention_limits.refusals,
        numerics=Numerics(rounding=("exact",)),
        compiled=True,
        workspace="msa_ops.nvidia.sparse_attention:workspace",
    ),
    Backend(
        op="sparse_attention",
        name="cute_sm90_prefill",
        target="msa_ops.nvidia.sparse_attention_by_block:sm90",
        archs=frozenset({"sm_90a"}),
        band=Band.SPECIALIZED,
        order=1,
        limits=(
            ("q_dtype", OneOf("bfloat16", "float8_e4m3fn")),
            ("kv_format", OneOf("nvfp4", "fp8", "bf16")),
            ("max_blocks", Between(0, 65_536)),
        ),
        predicate=sparse_attention_limits.prefill_refusals,
        numerics=Numerics(rounding=("exact",)),
        compiled=True,
        workspace="msa_ops.nvidia.sparse_attention_by_block:workspace",
    ),
    Backend(
        op="dense_attention",
        name="cute_sm90",
        target="msa_ops.nvidia.tiled_attention:sm90_dense",
        archs=frozenset({"sm_90a"}),
        band=Band.SPECIALIZED,
        limits=(("q_dtype", OneOf("bfloat16", "float8_e4m3fn")), ("kv_format", OneOf("nvfp4", "fp8", "bf16"))),
        predicate=sparse_attention_limits.refusals,
        numerics=Numerics(rounding=("exact",)),
        compiled=True,
        workspace="msa_ops.nvidia.tiled_attention:dense_workspace",
    ),
)


def register() -> None:
    for backend in BACKENDS:
        STORE.add_backend(backend)
