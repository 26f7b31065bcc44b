"""Examples run as scripts, with the arguments of their command lines: tutorials, and kernels whose checks are there."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from unittest import mock

import torch

from msa_ops.emulator import JitSession
from tests.emulator.public.cases import Case, mended


def script(name: str, chip: str, path: str, arguments: str = "", torch_version: str = torch.__version__) -> Case:
    """Runs an example as `python PATH ARGUMENTS` would; it has to raise, or to end with a status, if it is wrong.

    torch_version: the one that it sees: with an older one some compute a reference themselves, where torch has one for
        GPUs alone.
    """

    def run(folder: Path, session: JitSession) -> str:
        file = folder / path
        places = [str(file.parent), str(folder), *sys.path]
        with (
            mock.patch.object(sys, "argv", [str(file), *arguments.split()]),
            mock.patch.object(sys, "path", places),
            mock.patch.object(torch, "__version__", torch_version),
        ):
            try:
                runpy.run_path(str(file), run_name="__main__")
            except SystemExit as end:
                if end.code not in (None, 0):
                    raise RuntimeError(f"the script ends with {end.code}") from end
        return "by its own reference"

    return Case(name, chip, run)


BLACKWELL = "cute/blackwell/kernel"
EFC = "cute/blackwell/efc"
TASKS = "experimental/task_scheduling/blackwell/tutorial"
PRIMITIVES = "experimental/primitives/tutorial"
TILES = "--mma_tiler_mn 128,128 --cluster_shape_mn 1,1"
DENSE = f"--mnkl 256,256,128,1 {TILES}"

SCRIPTS = [
    script(name, chip, path, arguments, *rest)
    for name, chip, path, arguments, *rest in (
        (
            "ampere_hstu_attention",
            "sm_90a",
            "cute/ampere/kernel/attention/hstu_attention.py",
            "--batch_size 1 --seqlen_q 128 --seqlen_kv 128 --num_head 1 --head_dim 64 --is_causal",
        ),
        *(
            (
                f"ampere_elementwise_apply_{op}",
                "sm_90a",
                "cute/ampere/kernel/elementwise/elementwise_apply.py",
                f"--M 128 --N 256 --op {op}",
            )
            for op in ("add", "mul")
        ),
        ("ext_memcpy_simt", "sm_90a", "cute_ext/ampere/memcpy_simt_universal_copy.py", ""),
        ("ext_dense_block_scaled", "sm_100a", "cute_ext/blackwell/dense_block_scaled_gemm.py", "--mnkl 256,256,256,1"),
        ("ext_dense_gemm", "sm_100a", "cute_ext/blackwell/dense_gemm.py", "--mnkl 256,256,128,1"),
        ("ext_dense_gemm_2sm", "sm_100a", "cute_ext/blackwell/dense_gemm_2sm.py", ""),
        (
            "ext_dense_gemm_cute_pipeline",
            "sm_100a",
            "cute_ext/blackwell/dense_gemm_cute_pipeline.py",
            "--mnkl 256,256,128,1",
        ),
        ("ext_dense_gemm_ptr_array", "sm_100a", "cute_ext/blackwell/dense_gemm_ptr_array.py", "--mnkl 256,256,128,1"),
        ("efc_activation", "sm_100a", f"{EFC}/activation_custom_epilogue_dense_gemm.py", DENSE),
        ("efc_custom", "sm_100a", f"{EFC}/custom_epilogue_dense_gemm.py", DENSE),
        ("efc_synthetic", "sm_100a", f"{EFC}/synthetic_custom_epilogue_dense_gemm.py", DENSE),
        (
            "dense_gemm_alpha_beta",
            "sm_100a",
            f"{BLACKWELL}/dense_gemm/dense_gemm_alpha_beta_persistent.py",
            f"{DENSE} --alpha 0.5 --beta 2.0",
        ),
        *(
            (
                f"mixed_input_fmha_prefill_d{dim}",
                "sm_100a",
                f"{BLACKWELL}/attention/mixed_input_fmha/mixed_input_fmha_prefill_d{dim}.py",
                f"--q_shape 1,2,256,{dim} --k_shape 1,1,256,{dim} --tolerance 0.1",
            )
            for dim in (256, 512)
        ),
        *(
            (name, "sm_100a", f"{BLACKWELL}/mixed_input_gemm/{name}.py", "--mnkl 128,128,256,2")
            for name in ("grouped_mixed_input_gemm", "grouped_mixed_input_gemm_acc_scale")
        ),
        (
            "moe_grouped_mm",
            "sm_100a",
            f"{BLACKWELL}/moe/torch_grouped_mm.py",
            "--tokens 64 --experts 4 --top_k_select 2 --hidden 128 --intermediate 256",
        ),
        (
            "moe_grouped_mm_2Dx2D",
            "sm_100a",
            f"{BLACKWELL}/moe/torch_grouped_mm.py",
            "--tokens 64 --experts 4 --top_k_select 2 --hidden 128 --intermediate 256 --scenario 2Dx2D "
            "--a_layout m_major --compare_with_bmm",
        ),
        *(
            (
                f"moe_scaled_grouped_mm_{kind}",
                "sm_100a",
                f"{BLACKWELL}/moe/torch_scaled_grouped_mm.py",
                f"--tokens 64 --experts 4 --top_k_select 2 --hidden 256 --intermediate 256 --kind {kind}",
                "2.9",
            )
            for kind in ("mxfp8", "mxfp4", "nvfp4")
        ),
        *(
            (
                f"tutorial_tma_v{number}",
                "sm_100a",
                f"cute/blackwell/tutorial/tutorial_tma/tma_v{number}.py",
                "--M 256 --N 256 --num_warmup 0 --num_iters 1",
            )
            for number in (0, 1, 2)
        ),
        *(
            (f"dsl_{name}", "sm_90a", f"dsl_tutorials/{name}.py", arguments)
            for name, arguments in (
                ("call_bypass_dlpack", ""),
                ("dataclass_immutable", ""),
                ("dynamic_smem_size", ""),
                ("inline_ptx", ""),
                ("programmatic_dependent_launch", "--M 64 --N 256"),
                ("smem_allocator", ""),
            )
        ),
        ("dsl_fp16_gemm_4_iket", "sm_100a", "dsl_tutorials/fp16_gemm_4_iket.py", "--mnk 512,512,256"),
        *(
            (f"primitives_tutorial_{name[:2]}", chip, f"{PRIMITIVES}/{name}.py", "")
            for name, chip in (
                ("01_hello_world", "sm_90a"),
                ("03_gemm_tiled_smem", "sm_90a"),
                ("04_tma_load", "sm_90a"),
                ("05_minimal_tensor_mma", "sm_100a"),
                ("06_softmax", "sm_90a"),
                ("07_vectorized_array", "sm_90a"),
                ("09_tma_4d_to_2d", "sm_90a"),
                ("10_minimal_tensor_mma_fp8", "sm_100a"),
            )
        ),
        (
            "primitives_tutorial_warpspec",
            "sm_100a",
            f"{PRIMITIVES}/gemm_M128_N128_Kany_TN_warpspec_multistage.py",
            "",
        ),
        *(
            (f"tasks_{name}", "sm_100a", f"{TASKS}/{path}.py", arguments)
            for name, path, arguments in (
                ("copy_grid_stride", "01_copy_basics_ts/01_copy_grid_stride", ""),
                ("copy_tma", "01_copy_basics_ts/02_copy_tma", ""),
                ("gemm_simple", "02_gemm_simple_ts/01_fp16_bf16_gemm_3", "--mnk 512,512,256"),
                ("copy_skip", "03_persistent_scheduling_dynamic_domain_ts/01_copy_persistent_skip_tile", ""),
                ("copy_varlen", "03_persistent_scheduling_dynamic_domain_ts/02_copy_varlen_dynamic_domain", ""),
                ("gemm_cluster", "04_gemm_bf16_advanced_ts/01_fp16_bf16_gemm_3_cluster", "--mnk 512,512,256"),
                ("gemm_split_k", "06_gemm_split_k_fp16_ts/01_gemm_split_k_fp16", ""),
                ("merge_copy", "07_group_pipeline_ts/01_merge_copy", ""),
                ("merge_gemm", "07_group_pipeline_ts/02_merge_gemm", ""),
                ("merge_gemm_resadd", "07_group_pipeline_ts/03_merge_gemm_resadd", ""),
                ("fork_load_gemm_act", "07_group_pipeline_ts/04_fork_load_gemm_act", ""),
            )
        ),
    )
]

BY_NAME = {case.name: case for case in SCRIPTS}

CASES = [
    *SCRIPTS,
    # Tensor memory is given back when all warps that read the sums have them.
    mended(
        BY_NAME["mixed_input_fmha_prefill_d256"],
        (r"(setp\.ne\.b32\s+%p\d+, %r\d+, 12;\s+mov\.pred\s+%p\d+, 0;)", r"bar.sync 9, 128; \1"),
    ),
    # The warp that loads is at the barrier behind the initialisation of its mbarriers, too.
    mended(BY_NAME["tasks_gemm_simple"], (r"(fence\.mbarrier_init\.release\.cluster;)", r"\1 barrier.sync 0;")),
    # The address of tensor memory is there before anybody reads it; registers of a group are given up by all or none.
    mended(
        BY_NAME["primitives_tutorial_warpspec"],
        (r"(ld\.shared\.b32\s+%r6, \[%r5\];)", r"barrier.sync 0; \1"),
        (r"setmaxnreg\.dec\.sync\.aligned\.u32\s+40;", ""),
    ),
    *(
        mended(BY_NAME[f"primitives_tutorial_{number}"], (r"setmaxnreg\.\w+\.sync\.aligned\.u32\s+\d+;", ""))
        for number in ("05", "10")
    ),
    # All warps have read the maximum before sums take its place.
    mended(BY_NAME["primitives_tutorial_06"], (r"(ld\.shared\.b32\s+%r41, \[%r1\];)", r"\1 barrier.sync 0;")),
]
