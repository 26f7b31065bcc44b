"""Examples of single instructions and small pipelines, each with a function that verifies what it computed."""

from __future__ import annotations

from tests.emulator.public.cases import example, mended

FOLDER = "experimental/primitives"
HOPPER = (
    "async_pipeline",
    "bar_warp_sync",
    "barrier_cta_red",
    "barrier_cta_sync",
    "cp_async_bulk",
    "cp_async_bulk_prefetch",
    "cp_async_mbarrier_arrive_cluster",
    "cp_async_mbarrier_arrive_cta",
    "cp_async_shared_global",
    "cp_async_shared_global_swizzled",
    "elect_sync",
    "mapa",
    "mbarrier",
    "mbarrier_lifecycle",
    "pipeline_software_fill",
    "red",
    "shfl_sync",
    "vote_sync",
    "warp_named_barrier",
    "reduction/block_smem_reduce",
    "reduction/cluster_smem_reduce",
    "reduction/thread_vector_reduce",
    "reduction/warp_vector_reduce",
    "tma/tma_1cta_mbarrier",
    "tma/tma_load_store",
    "tma/tma_load_to_ldmatrix",
    "tma/tma_pipeline_count2",
    "tma/tma_pipeline_pingpong",
    "tma/tma_pipeline_single_warp",
    "tma/tma_pipeline_warpspec",
    "tma/tma_store",
    "tma/tma_swizzle_modes",
    "tma/tma_tensormap_replace",
)
BLACKWELL = (
    "basic_types",
    "ldmatrix_stmatrix",
    "redux_sync",
    "reduction/cluster_tmem_reduce",
    "tcgen05/1cta_mma_a_from_tmem",
    "tcgen05/1cta_mma_basic",
    "tcgen05/1cta_mma_mn_major",
    "tcgen05/1cta_mma_pipeline",
    "tcgen05/2cta_mma_basic",
    "tcgen05/2cta_mma_blockscale_m128",
    "tcgen05/2cta_mma_tma_store",
    "tcgen05/clusterMxN_2cta_mma",
    "tcgen05/cp_narrow_a_to_tmem_mma",
    "tcgen05/mcast_clusterMxN_1cta_mma",
    "tcgen05/mcast_clusterMxN_2cta_mma",
    "tcgen05/slicek_m32n8k128",
    "tcgen05/tmem_ld_st",
    "tcgen05/tmem_ld_to_stmatrix_transpose",
    "tma/tma_multicast",
)

EXAMPLES = [
    example(f"primitive_{path.rpartition('/')[2]}", chip, f"{FOLDER}/{path}.py", "verify")
    for chip, paths in (("sm_90a", HOPPER), ("sm_100a", BLACKWELL))
    for path in paths
] + [
    example(
        "primitive_cp_narrow_a_to_tmem_mma_fp6",
        "sm_100a",
        f"{FOLDER}/tcgen05/cp_narrow_a_to_tmem_mma.py",
        "verify",
        a_dtype="fp6",
    ),
    example(
        "primitive_1cta_mma_a_from_tmem_ashift",
        "sm_100a",
        f"{FOLDER}/tcgen05/1cta_mma_a_from_tmem.py",
        "verify",
        ashift=True,
    ),
]
WAIT = "{ .reg .pred %done; AGAIN: mbarrier.try_wait.parity.shared.b64 %done, [mended_bar], 0; @!%done bra AGAIN; }"

CASES = [
    *EXAMPLES,
    # A block stays until its peer has read its memory, or until the last commits of all blocks have arrived in it.
    *(
        mended(case, (r"(\bret;)", r"barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; \1"))
        for case in EXAMPLES
        if case.name in ("primitive_mapa", "primitive_mcast_clusterMxN_1cta_mma", "primitive_mcast_clusterMxN_2cta_mma")
    ),
    # What cp.async wrote is made known to the proxy of tcgen05.
    *(
        mended(case, (r"(cp\.async\.wait_group\s+0;)", r"\1 fence.proxy.async.shared::cta;"))
        for case in EXAMPLES
        if case.name == "primitive_slicek_m32n8k128"
    ),
    # A stage is filled anew when all warps have read it, not only the one that fills it.
    *(
        mended(case, (r"(add\.s32\s+%r\d+, %r\d+, 1;\s+setp\.eq\.b32\s+%p\d+, %r\d+, 2;)", r"barrier.sync 0; \1"))
        for case in EXAMPLES
        if case.name == "primitive_tma_pipeline_single_warp"
    ),
    # The copy into tensor memory is waited for by its commit, and the peer's memory read when it has been released.
    *(
        mended(
            case,
            (r"(\.extern \.shared)", r".shared .align 8 .b64 mended_bar; \1"),
            (
                r"(tcgen05\.alloc)",
                r"{ .reg .b32 %m; .reg .pred %e; elect.sync %m|%e, -1; "
                r"@%e mbarrier.init.shared.b64 [mended_bar], 1; } \1",
            ),
            (
                r"(tcgen05\.cp[^;]*;)",
                r"\1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [mended_bar];",
            ),
            (r"tcgen05\.wait::st\.sync\.aligned;", WAIT),
            (r"barrier\.cluster\.arrive\.relaxed;", "barrier.cluster.arrive.release;"),
        )
        for case in EXAMPLES
        if case.name == "primitive_cluster_tmem_reduce"
    ),
    # What the leader has waited for is handed to the other block by the cluster's barrier.
    *(
        mended(case, (r"barrier\.cluster\.arrive\.relaxed;", "barrier.cluster.arrive.release;"))
        for case in EXAMPLES
        if case.name == "primitive_tma_multicast"
    ),
]
