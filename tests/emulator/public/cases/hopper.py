"""Kernels for Hopper, and those for Ampere compiled for it."""

from __future__ import annotations

from typing import Any

from tests.emulator.public.cases import example, mended
from tests.emulator.public.cases.blackwell import K_MAJOR, ONCE, bfloat, e4m3, half, single

HOPPER = "cute/hopper/kernel"
AMPERE = "cute/ampere/kernel"
TYPES = {"a_dtype": half, "b_dtype": half, "c_dtype": half, "acc_dtype": single}
TILE = {"tile_shape_mn": (128, 128), "cluster_shape_mn": (1, 1)}
PAIR = {"tile_shape_mn": (128, 256), "cluster_shape_mn": (2, 1)}
DENSE = {"mnkl": (256, 256, 256, 1), **TYPES, **K_MAJOR, **ONCE}


def fmha(name: str, **keywords: Any) -> Any:
    plain = {
        "q_shape": (1, 256, 2, 128),
        "k_shape": (1, 384, 1, 128),
        "in_dtype": half,
        "out_dtype": half,
        "qk_acc_dtype": single,
        "pv_acc_dtype": single,
        "mma_tiler_mn": (64, 128),
        "is_persistent": False,
        "is_causal": False,
        "bottom_right_align": False,
        "scale_q": 1.0,
        "scale_k": 1.0,
        "scale_v": 1.0,
        "inv_scale_o": 1.0,
        "scale_softmax": 0.0,
        "window_size": (-1, -1),
        **ONCE,
    }
    return example(name, "sm_90a", f"{HOPPER}/attention/fmha.py", **(plain | keywords))


DOUBLE_SUMS = example(
    "hopper_dense_gemm_fp8_2xacc",
    "sm_90a",
    f"{HOPPER}/dense_gemm/dense_gemm_fp8_2xacc.py",
    mnkl=(256, 256, 512, 1),
    c_dtype=half,
    **TILE,
    **ONCE,
)

CASES = [
    example("hopper_dense_gemm", "sm_90a", f"{HOPPER}/dense_gemm/dense_gemm.py", **DENSE, **TILE),
    example("hopper_dense_gemm_clusters", "sm_90a", f"{HOPPER}/dense_gemm/dense_gemm.py", **DENSE, **PAIR),
    example("hopper_dense_gemm_persistent", "sm_90a", f"{HOPPER}/dense_gemm/dense_gemm_persistent.py", **DENSE, **TILE),
    example(
        "hopper_dense_gemm_persistent_clusters",
        "sm_90a",
        f"{HOPPER}/dense_gemm/dense_gemm_persistent.py",
        **DENSE,
        **PAIR,
    ),
    DOUBLE_SUMS,
    mended(DOUBLE_SUMS, (r"(wgmma\.mma_async)", r"wgmma.fence.sync.aligned; \1")),
    example(
        "hopper_dense_gemm_fp8_gelu",
        "sm_90a",
        f"{HOPPER}/dense_gemm/dense_gemm_fp8_gelu_persistent.py",
        **(DENSE | {"a_dtype": e4m3, "b_dtype": e4m3}),
        **TILE,
    ),
    fmha("hopper_fmha"),
    fmha("hopper_fmha_persistent", is_persistent=True),
    fmha("hopper_fmha_causal", is_causal=True),
    example(
        "hopper_grouped_gemm",
        "sm_90a",
        f"{HOPPER}/grouped_gemm/grouped_gemm.py",
        num_groups=2,
        problem_sizes_mnkl=[(128, 256, 256, 1), (256, 128, 128, 1)],
        **TYPES,
        **K_MAJOR,
        **TILE,
        **ONCE,
    ),
    *(
        example(
            f"hopper_cta_norm_{kind}",
            "sm_90a",
            f"{HOPPER}/cta_norm/cta_norm.py",
            "run_layernorm",
            M=4,
            N=1024,
            threads_per_cta=128,
            norm_type=kind,
            dtype=half,
            benchmark=False,
        )
        for kind in ("layer", "rms")
    ),
    example(
        "ampere_flash_attention",
        "sm_90a",
        f"{AMPERE}/attention/flash_attention_v2.py",
        dtype=bfloat,
        batch_size=1,
        seqlen_q=128,
        seqlen_k=256,
        num_head=2,
        head_dim=128,
        softmax_scale=0.0884,
    ),
    example(
        "ampere_flash_attention_causal",
        "sm_90a",
        f"{AMPERE}/attention/flash_attention_v2.py",
        dtype=half,
        batch_size=1,
        seqlen_q=200,
        seqlen_k=200,
        num_head=1,
        head_dim=64,
        is_causal=True,
    ),
    example(
        "ampere_sgemm",
        "sm_90a",
        f"{AMPERE}/dense_gemm/sgemm.py",
        mnk=(256, 128, 64),
        a_major="m",
        b_major="n",
        c_major="n",
        warmup_iterations=0,
        iterations=1,
    ),
    example(
        "ampere_tensorop_gemm",
        "sm_90a",
        f"{AMPERE}/dense_gemm/tensorop_gemm.py",
        mnkl=(256, 128, 128, 1),
        ab_dtype=half,
        c_dtype=half,
        acc_dtype=single,
        **K_MAJOR,
        atom_layout_mnk=(2, 2, 1),
        warmup_iterations=0,
        iterations=1,
    ),
    example(
        "ampere_elementwise_add",
        "sm_90a",
        f"{AMPERE}/elementwise/elementwise_add.py",
        "run_elementwise_add",
        M=128,
        N=256,
        dtype=single,
        benchmark=False,
    ),
]
