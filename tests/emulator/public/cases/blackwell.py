"""Kernels for Blackwell."""

from __future__ import annotations

from typing import Any

from tests.emulator.public.cases import example, mended

FOLDER = "cute/blackwell/kernel"


def half(cutlass: Any) -> Any:
    return cutlass.Float16


def bfloat(cutlass: Any) -> Any:
    return cutlass.BFloat16


def single(cutlass: Any) -> Any:
    return cutlass.Float32


def e4m3(cutlass: Any) -> Any:
    return cutlass.Float8E4M3FN


def e8m0(cutlass: Any) -> Any:
    return cutlass.Float8E8M0FNU


def e2m1(cutlass: Any) -> Any:
    return cutlass.Float4E2M1FN


def int8(cutlass: Any) -> Any:
    return cutlass.Int8


K_MAJOR = {"a_major": "k", "b_major": "k", "c_major": "n"}
ONCE = {"tolerance": 0.1, "warmup_iterations": 0, "iterations": 1, "skip_ref_check": False}
ONE = {"mma_tiler_mn": (128, 128), "cluster_shape_mn": (1, 1)}
PAIR = {"mma_tiler_mn": (256, 128), "cluster_shape_mn": (2, 1)}
WIDE_PAIR = {"mma_tiler_mn": (256, 256), "cluster_shape_mn": (2, 1)}


def gemm(name: str, path: str, chip: str = "sm_100a", **keywords: Any) -> list[Any]:
    """One block, and pairs of blocks."""
    plain = {"mnkl": (512, 512, 256, 1), "ab_dtype": half, "c_dtype": half, "acc_dtype": single, **K_MAJOR, **ONCE}
    return [
        example(name, chip, f"{FOLDER}/{path}", **(plain | ONE | {"use_2cta_instrs": False} | keywords)),
        example(f"{name}_pair", chip, f"{FOLDER}/{path}", **(plain | PAIR | {"use_2cta_instrs": True} | keywords)),
    ]


def scaled(name: str, path: str, chip: str = "sm_100a", **keywords: Any) -> list[Any]:
    """Block-scaled: one block, and pairs of blocks."""
    plain = {"mnkl": (256, 256, 1024, 1), "c_dtype": half, **K_MAJOR, **ONCE} | keywords
    return [
        example(name, chip, f"{FOLDER}/{path}", **(plain | ONE)),
        example(f"{name}_pair", chip, f"{FOLDER}/{path}", **(plain | WIDE_PAIR)),
    ]


NVFP4 = {"ab_dtype": e2m1, "sf_dtype": e4m3, "sf_vec_size": 16}
MXFP8 = {"ab_dtype": e4m3, "sf_dtype": e8m0, "sf_vec_size": 32}


def apart(formats: dict[str, Any]) -> dict[str, Any]:
    """The same where A and B have a type each."""
    rest = {key: value for key, value in formats.items() if key != "ab_dtype"}
    return rest | {"a_dtype": formats["ab_dtype"], "b_dtype": formats["ab_dtype"]}


GROUPS = {"num_groups": 2, "problem_sizes_mnkl": [(128, 256, 256, 1), (256, 128, 512, 1)]}
SCALED_GEMM = "blockscaled_gemm/dense_blockscaled_gemm_persistent"
BLOCKWISE = {"mnkl": (256, 256, 256, 1), "ab_dtype": e4m3, "c_dtype": bfloat, "scale_dtype": single}

TWO_GROUPS = BLOCKWISE | {"mnkl": (256, 256, 256, 2)}
CONTIGUOUS = TWO_GROUPS | {"acc_dtype": single, "use_2cta_instrs": False} | K_MAJOR | ONE | ONCE
MASKED = gemm("masked_grouped_gemm", "blockwise_gemm/masked_grouped_gemm.py", **TWO_GROUPS)

MIXED_DECODE = [
    example(
        f"mixed_input_fmha_decode_{splits}",
        "sm_100a",
        f"{FOLDER}/attention/mixed_input_fmha/mixed_input_fmha_decode.py",
        batches=1,
        seqlen=512,
        heads_q=32,
        heads_k=4,
        headdim=256,
        block_scaledim=256,
        kv_splits=splits,
        tolerance=0.1,
    )
    for splits in (1, 2)
]

FMHA_BACKWARD = example(
    "fmha_backward",
    "sm_100a",
    f"{FOLDER}/attention/fmha/fmha_bwd.py",
    s_q=128,
    s_k=128,
    h_q=1,
    h_k=1,
    d=64,
    b=1,
    is_causal=False,
    bottom_right_align=False,
    element_dtype=half,
    acc_dtype=single,
    mma_tiler_mn=(128, 128),
    scale_softmax=0.0,
    window_size=(-1, -1),
    warmup_iterations=0,
    iterations=1,
    skip_ref_check=False,
)

CASES = [
    *gemm("dense_gemm", "dense_gemm/dense_gemm.py", use_tma_store=True),
    *gemm("dense_gemm_direct_store", "dense_gemm/dense_gemm.py", use_tma_store=False),
    *gemm("dense_gemm_persistent", "dense_gemm/dense_gemm_persistent.py", use_tma_store=True),
    *gemm("dense_gemm_persistent_fp8", "dense_gemm/dense_gemm_persistent.py", use_tma_store=True, ab_dtype=e4m3),
    *gemm(
        "dense_gemm_persistent_fp8_rubin",
        "dense_gemm/dense_gemm_persistent.py",
        "sm_107a",
        use_tma_store=True,
        ab_dtype=e4m3,
    ),
    *gemm("dense_gemm_persistent_prefetch", "dense_gemm/dense_gemm_persistent_prefetch.py", use_tma_store=True),
    *gemm("dense_gemm_persistent_dynamic", "dense_gemm/dense_gemm_persistent_dynamic.py", use_tma_store=True),
    *gemm("dense_gemm_software_pipeline", "dense_gemm/dense_gemm_software_pipeline.py", use_tma_store=True),
    *scaled("dense_blockscaled_nvfp4", f"{SCALED_GEMM}.py", **apart(NVFP4)),
    *scaled("dense_blockscaled_mxfp8", f"{SCALED_GEMM}.py", **apart(MXFP8)),
    *scaled("dense_blockscaled_amax", f"{SCALED_GEMM}_amax.py", **NVFP4),
    *scaled("dense_blockscaled_prefetch", f"{SCALED_GEMM}_prefetch.py", **NVFP4),
    *scaled(
        "sm103_dense_blockscaled",
        "blockscaled_gemm/sm103_dense_blockscaled_gemm_persistent.py",
        "sm_103a",
        **NVFP4,
        mnkl=(256, 256, 768, 1),
    ),
    *scaled(
        "grouped_blockscaled_nvfp4",
        "blockscaled_grouped_gemm/grouped_blockscaled_gemm.py",
        **NVFP4,
        **GROUPS,
        host_problem_shape_available=True,
    ),
    *scaled(
        "grouped_blockscaled_mxfp8",
        "blockscaled_grouped_gemm/grouped_blockscaled_gemm.py",
        **MXFP8,
        **GROUPS,
        host_problem_shape_available=False,
    ),
    *scaled(
        "sm103_grouped_blockscaled",
        "blockscaled_grouped_gemm/sm103_grouped_blockscaled_gemm.py",
        "sm_103a",
        **NVFP4,
        num_groups=2,
        problem_sizes_mnkl=[(128, 256, 768, 1), (256, 128, 1536, 1)],
        host_problem_shape_available=True,
    ),
    *(
        example(
            f"grouped_gemm_{mode.lower()}",
            "sm_100a",
            f"{FOLDER}/grouped_gemm/grouped_gemm.py",
            **GROUPS,
            host_problem_shape_available=mode == "SMEM",
            ab_dtype=half,
            c_dtype=half,
            acc_dtype=single,
            **K_MAJOR,
            **(PAIR if mode == "SMEM" else ONE),
            use_2cta_instrs=mode == "SMEM",
            tensormap_update_mode=lambda cutlass, mode=mode: getattr(cutlass.utils.TensorMapUpdateMode, mode),
            **ONCE,
        )
        for mode in ("SMEM", "GMEM")
    ),
    *gemm("blockwise_gemm", "blockwise_gemm/blockwise_gemm.py", **BLOCKWISE),
    example("contiguous_grouped_gemm", "sm_100a", f"{FOLDER}/blockwise_gemm/contiguous_grouped_gemm.py", **CONTIGUOUS),
    example(
        "contiguous_grouped_gemm_pair",
        "sm_100a",
        f"{FOLDER}/blockwise_gemm/contiguous_grouped_gemm.py",
        **(CONTIGUOUS | {"cluster_shape_mn": (2, 1), "use_2cta_instrs": True}),
    ),
    *MASKED,
    # No tile is looked up behind the last one.
    mended(
        MASKED[0],
        (
            r"(setp\.ne\.b32\s+(%p\d+), %r\d+, 0;\s+shl\.b32\s+%r\d+, %r\d+, \d+;"
            r"\s+mul\.wide\.s32\s+%rd\d+, %r\d+, 4;\s+add\.s64\s+%rd\d+, %rd\d+, %rd\d+;\s+)"
            r"(ld\.global\.b32\s+(%r\d+), \[%rd\d+\];)",
            r"\1mov.b32 \4, 0; @\2 \3",
        ),
    ),
    *(
        example(
            f"mla_decode_{name}",
            "sm_100a",
            f"{FOLDER}/attention/mla/mla_decode_{name}.py",
            batch_size=2,
            seq_len_q=1,
            seq_len_k=256,
            num_heads=128,
            latent_dim=512,
            rope_dim=64,
            in_dtype=dtype,
            out_dtype=dtype,
            acc_dtype=single,
            lse_dtype=single,
            mma_qk_tiler_mn=(128, 128),
            mma_pv_tiler_mn=(128, 256),
            split_kv=2,
            is_persistent=True,
            is_var_seq=True,
            is_var_split_kv=False,
            page_size=128,
            softmax_scale=0.0417,
            output_scale=1.0,
            skip_correction_threshold=0.0,
            use_cold_l2=False,
            **ONCE,
        )
        for name, dtype in (("fp16", half), ("fp8", e4m3))
    ),
    *MIXED_DECODE,
    # The sums' zeros are in tensor memory before anybody is told, and a maximum is raised when all have read the last.
    *(
        mended(
            case,
            (r"(bar\.sync\s+1, 128;)", r"tcgen05.wait::st.sync.aligned; \1"),
            (r"(tcgen05\.wait::ld\.sync\.aligned;)", r"\1 bar.sync 1, 128;"),
        )
        for case in MIXED_DECODE
    ),
    *(
        example(
            f"fmha_{name}",
            "sm_100a",
            f"{FOLDER}/attention/fmha/fmha.py",
            q_shape=(1, 256, 2, 128),
            k_shape=(1, 384, 1, 128),
            qk_dtype=dtype,
            pv_dtype=dtype,
            out_dtype=half,
            qk_acc_dtype=single,
            pv_acc_dtype=single,
            mma_tiler_mn=(128, 128),
            enable_ex2_emulation=causal,
            enable_skip_correction=True,
            is_persistent=True,
            is_causal=causal,
            bottom_right_align=False,
            lse_calculation=False,
            window_size=(-1, -1),
            scale_q=1.0,
            scale_k=1.0,
            scale_v=1.0,
            inv_scale_o=1.0,
            scale_softmax=0.0,
            skip_softmax_threshold=0.0,
            **ONCE,
        )
        for name, dtype, causal in (("fp16", half, False), ("fp16_causal", half, True), ("fp8", e4m3, False))
    ),
    FMHA_BACKWARD,
    # Tensor memory is given back when the warps that read the last product have it, too.
    mended(
        FMHA_BACKWARD,
        (r"bar\.sync\s+4, 256;", "bar.sync 6, 384;"),
        (r"(cp\.async\.bulk\.wait_group\.read\s+0;)", r"bar.arrive 6, 384; \1"),
    ),
    example(
        "mamba2_ssd",
        "sm_100a",
        f"{FOLDER}/attention/mamba2_ssd/mamba2_ssd.py",
        gbehcdln=(1, 1, 1, 1, 2, 64, 128, 128),
        io_dtype=bfloat,
        cumsum_delta_dtype=single,
        acc_dtype=single,
        fuse_scale_d="none",
        print_rtol_stats=False,
        ref_lower_precision=True,
        **(ONCE | {"tolerance": 5e-2}),
    ),
    *(
        example(
            f"mixed_input_gemm{name}",
            "sm_100a",
            f"{FOLDER}/mixed_input_gemm/mixed_input_gemm.py",
            mnkl=(256, 256, 256, 1),
            scale_granularity_m=granularity[0],
            scale_granularity_k=granularity[1],
            a_dtype=int8,
            b_dtype=bfloat,
            c_dtype=bfloat,
            acc_dtype=single,
            a_major="k",
            b_major="k",
            c_major="n",
            mma_tiler_mnk=(128, 128, 64),
            cluster_shape_mn=(1, 1),
            use_2cta_instrs=False,
            use_tma_store=True,
            **ONCE,
        )
        for name, granularity in (("", (0, 0)),)
    ),
    example("blackwell_rmsnorm", "sm_100a", f"{FOLDER}/rmsnorm/rmsnorm.py", M=8, N=2048, dtype=bfloat, benchmark=False),
]
