"""Asynchronous copies, mbarriers and what is sent between blocks of a cluster, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import run_ptx
from tests.emulator.programs import kernel

RNG = np.random.default_rng(3)
SEEDS = [None, 1, 2, 3]
SHARED = ".shared .align 128 .b8 buffer[8192];\n.shared .align 8 .b64 bar[4];"
INIT = """
setp.eq.u32 %p1, %r0, 0;
mov.b32 %r1, bar; mov.b32 %r2, buffer;
@%p1 mbarrier.init.shared::cta.b64 [%r1], {count};
@%p1 fence.mbarrier_init.release.cluster;
bar.sync 0;
"""
WAIT = (
    "{{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [{bar}], {phase}; @!done bra again; }}\n"
)
OWN_WORD = "shl.b32 %r3, %r0, 2; add.s32 %r4, %r2, %r3; cvt.u64.u32 %rd3, %r3;\n"
ALL_MET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"


def init(count: int = 1) -> str:
    return INIT.replace("{count}", str(count))


def wait(bar: str = "%r1", phase: int | str = 0) -> str:
    return WAIT.format(bar=bar, phase=phase)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bytes_", [4, 8, 16])
def test_copies_of_threads_in_groups(bytes_: int, seed: int | None) -> None:
    """Three groups; each is read as soon as no more groups than came after it are on their way."""
    data = RNG.integers(0, 256, (3, 32 * bytes_), dtype=np.uint8)
    out = np.zeros_like(data)
    r = {4: "%r10", 8: "%rd10", 16: "{%rd10, %rd11}"}[bytes_]
    kind = {4: "b32", 8: "b64", 16: "v2.b64"}[bytes_]
    body = f"mov.b32 %r2, buffer; mul.lo.s32 %r3, %r0, {bytes_}; add.s32 %r4, %r2, %r3; cvt.u64.u32 %rd3, %r3;\n"
    body += "add.s64 %rd4, %rd0, %rd3; add.s64 %rd5, %rd1, %rd3;\n"
    for group in range(3):
        body += f"cp.async.ca.shared.global [%r4+{group * 512}], [%rd4+{group * 32 * bytes_}], {bytes_};\n"
        body += "cp.async.commit_group;\n"
    for group in range(3):
        body += f"cp.async.wait_group {2 - group};\n" if group < 2 else "cp.async.wait_all;\n"
        body += f"ld.shared.{kind} {r}, [%r4+{group * 512}];\nst.global.{kind} [%rd5+{group * 32 * bytes_}], {r};\n"
    run_ptx(kernel(body, 2, SHARED), "k", 1, 32, [data, out], seed=seed)
    np.testing.assert_array_equal(out, data)


def test_copies_with_fewer_source_bytes_and_ignored() -> None:
    data = RNG.integers(1, 256, 32 * 16, dtype=np.uint8)
    out = np.full_like(data, 7)
    body = """
    mov.b32 %r2, buffer; shl.b32 %r3, %r0, 4; add.s32 %r4, %r2, %r3; cvt.u64.u32 %rd3, %r3;
    add.s64 %rd4, %rd0, %rd3; add.s64 %rd5, %rd1, %rd3; and.b32 %r5, %r0, 15; setp.gt.u32 %p2, %r0, 27;
    setp.lt.u32 %p3, %r0, 16;
    @%p3 cp.async.cg.shared.global.L2::128B [%r4], [%rd4], 16, %r5;
    @!%p3 cp.async.cg.shared.global [%r4], [%rd4], 16, %p2;
    cp.async.wait_all;
    ld.shared.v2.b64 {%rd10, %rd11}, [%r4]; st.global.v2.b64 [%rd5], {%rd10, %rd11};
    """
    run_ptx(kernel(body, 2, SHARED), "k", 1, 32, [data, out])
    expected = data.reshape(32, 16).copy()
    for lane in range(32):
        expected[lane, lane if lane < 16 else 0 if lane > 27 else 16 :] = 0
    np.testing.assert_array_equal(out.reshape(32, 16), expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("noinc", ["", ".noinc"])
def test_copies_of_threads_signal_an_mbarrier(noinc: str, seed: int | None) -> None:
    """Warp 0 copies, warp 1 waits for its 32 threads."""
    data, out = RNG.integers(0, 2**32, 32, dtype=np.uint32), np.zeros(32, np.uint32)
    body = init(32 if noinc else 1) + OWN_WORD + "setp.lt.u32 %p2, %r0, 32;\n@!%p2 bra SECOND;\n"
    body += "add.s64 %rd4, %rd0, %rd3; cp.async.ca.shared.global [%r4], [%rd4], 4;\n"
    body += f"cp.async.mbarrier.arrive{noinc}.shared::cta.b64 [%r1];\n"
    body += "" if noinc else "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];\n"
    body += "bra END;\nSECOND:\n" + wait() + "add.s64 %rd4, %rd1, %rd3;\n"
    body += "ld.shared.b32 %r5, [%r4+-128]; st.global.b32 [%rd4+-128], %r5;\nEND:"
    run_ptx(kernel(body, 2, SHARED), "k", 1, 64, [data, out], seed=seed)
    np.testing.assert_array_equal(out, data)


@pytest.mark.parametrize("seed", SEEDS)
def test_ring_of_bulk_copies(seed: int | None) -> None:
    """A warp that loads and one that adds up, over two stages with full and empty mbarriers."""
    steps = 7
    data, out = RNG.integers(0, 1000, (steps, 32), dtype=np.uint32), np.zeros(32, np.uint32)
    body = f"""
    setp.eq.u32 %p1, %r0, 0; mov.b32 %r1, bar; mov.b32 %r2, buffer;
    @%p1 mbarrier.init.shared::cta.b64 [%r1], 1; @%p1 mbarrier.init.shared::cta.b64 [%r1+8], 1;
    @%p1 mbarrier.init.shared::cta.b64 [%r1+16], 32; @%p1 mbarrier.init.shared::cta.b64 [%r1+24], 32;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    mov.b32 %r10, 0; mov.b32 %r11, 0;
    setp.lt.u32 %p2, %r0, 32; @!%p2 bra SECOND;
    @!%p1 bra END;
    LOAD:
    and.b32 %r12, %r10, 1; shr.u32 %r13, %r10, 1; and.b32 %r14, %r13, 1; xor.b32 %r14, %r14, 1;
    shl.b32 %r15, %r12, 3; add.s32 %r15, %r15, %r1;
    {wait("%r15+16", "%r14")}
    mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r15], 128;
    shl.b32 %r16, %r12, 7; add.s32 %r16, %r16, %r2;
    mul.wide.u32 %rd4, %r10, 128; add.s64 %rd4, %rd4, %rd0;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r16], [%rd4], 128, [%r15];
    add.s32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, {steps}; @%p3 bra LOAD;
    bra END;
    SECOND:
    sub.s32 %r3, %r0, 32; shl.b32 %r3, %r3, 2;
    ADD:
    and.b32 %r12, %r10, 1; shr.u32 %r13, %r10, 1; and.b32 %r14, %r13, 1;
    shl.b32 %r15, %r12, 3; add.s32 %r15, %r15, %r1;
    {wait("%r15", "%r14")}
    shl.b32 %r16, %r12, 7; add.s32 %r16, %r16, %r2; add.s32 %r16, %r16, %r3; ld.shared.b32 %r17, [%r16];
    add.s32 %r11, %r11, %r17;
    mbarrier.arrive.release.cta.shared::cta.b64 _, [%r15+16];
    add.s32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, {steps}; @%p3 bra ADD;
    cvt.u64.u32 %rd3, %r3; add.s64 %rd3, %rd3, %rd1; st.global.b32 [%rd3], %r11;
    END:
    """
    run_ptx(kernel(body, 2, SHARED), "k", 1, 64, [data, out], seed=seed)
    np.testing.assert_array_equal(out, data.sum(0, dtype=np.uint32))


def test_states_and_counts_of_mbarriers() -> None:
    """Tokens, pending counts, drops, arrivals of several, and what test_wait says meanwhile."""
    out = np.zeros(16, np.uint32)
    steps = [
        "mbarrier.arrive.shared::cta.b64 %rd5, [%r1];\nmbarrier.pending_count.b64 %r5, %rd5;",  # 5 were pending
        "mbarrier.test_wait.shared::cta.b64 %p3, [%r1], %rd5;\nselp.b32 %r5, 1, 0, %p3;",
        "mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %rd6, [%r1], 2;\nmbarrier.pending_count.b64 %r5, %rd6;",
        "mbarrier.arrive_drop.shared::cta.b64 %rd6, [%r1];\nmbarrier.pending_count.b64 %r5, %rd6;",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 64;\nmbarrier.arrive.shared::cta.b64 %rd6, [%r1];\n"
        "mbarrier.test_wait.shared::cta.b64 %p3, [%r1], %rd5;\nselp.b32 %r5, 1, 0, %p3;",  # bytes are missing
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 64;\n"
        "mbarrier.test_wait.shared::cta.b64 %p3, [%r1], %rd5;\nselp.b32 %r5, 1, 0, %p3;",
        "mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1], 0;\nselp.b32 %r5, 1, 0, %p3;",
        "mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r1], 1;\nselp.b32 %r5, 1, 0, %p3;",
        "mbarrier.arrive.expect_tx.shared::cta.b64 %rd6, [%r1], 0;\nmbarrier.pending_count.b64 %r5, %rd6;",  # 4 now
        "mbarrier.inval.shared::cta.b64 [%r1]; mov.b32 %r6, 9; st.shared.b64 [%r1], %rd6; ld.shared.b32 %r5, [%r1];\n"
        "mov.b32 %r5, 3;",
    ]
    body = init(5) + "@!%p1 bra END;\n"
    body += "".join(f"{step}\nst.global.b32 [%rd0+{4 * i}], %r5;\n" for i, step in enumerate(steps)) + "END:"
    run_ptx(kernel(body, 1, SHARED), "k", 1, 32, [out])
    np.testing.assert_array_equal(out[:10], [5, 0, 4, 2, 0, 1, 1, 0, 4, 3])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("add.u32", "u4"), ("min.s32", "i4"), ("max.u64", "u8"), ("and.b32", "u4"), ("add.f32", "f4"), ("add.f64", "f8"),
     ("add.noftz.f16", "f2"), ("inc.u32", "u4"), ("xor.b64", "u8")],
)  # fmt: skip
def test_bulk_reductions_into_global_memory(name: str, dtype: str, seed: int | None) -> None:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        data, out = RNG.normal(size=(2, 64)).astype(kind)
    else:
        data, out = RNG.integers(0, 50, (2, 64)).astype(kind)
    before, data, out = out.copy(), data.copy(), out.copy()
    body = (
        init()
        + f"""
    @!%p1 bra END;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {data.nbytes};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd0], {data.nbytes}, [%r1];
    {wait()}
    cp.reduce.async.bulk.global.shared::cta.bulk_group.{name} [%rd1], [%r2], {data.nbytes};
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    END:
    """
    )
    run_ptx(kernel(body, 2, SHARED), "k", 1, 32, [data, out], seed=seed)
    a, b = before, data
    expected = {
        "add": lambda: (a.astype("f4") + b.astype("f4")).astype(kind) if dtype == "f2" else a + b,
        "min": lambda: np.minimum(a, b), "max": lambda: np.maximum(a, b), "and": lambda: a & b, "xor": lambda: a ^ b,
        "inc": lambda: np.where(a >= b, 0, a + 1).astype(kind),
    }[name.split(".")[0]]()  # fmt: skip
    assert out.tobytes() == expected.tobytes()


def test_bytes_of_a_bulk_copy_that_a_mask_names() -> None:
    data, out = RNG.integers(0, 256, 64, dtype=np.uint8), np.zeros(64, np.uint8)
    body = (
        init()
        + """
    @!%p1 bra END;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r2], [%rd0], 64, [%r1], %rd4;
    """.replace("@!%p1 bra END;", "@!%p1 bra END; createpolicy.fractional.L2::evict_first.b64 %rd4, 0f3F800000;")
    )
    body += (
        wait()
        + """
    mov.b16 %h1, 0x8003;
    cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1], [%r2], 64, %h1;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;
    cp.async.bulk.prefetch.L2.global [%rd0], 64;
    END:
    """
    )
    run_ptx(kernel(body, 2, SHARED), "k", 1, 32, [data, out])
    mask = np.isin(np.arange(64) % 16, [0, 1, 15])
    np.testing.assert_array_equal(out, np.where(mask, data, 0))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("vector, type_", [(1, "b32"), (2, "f32"), (4, "u32"), (1, "b64"), (2, "s64")])
def test_stores_that_signal_another_block(vector: int, type_: str, seed: int | None) -> None:
    """Each block sends its numbers to the next of four, whose mbarrier counts the bytes."""
    size = int(type_[1:]) // 8 * vector
    words = size // 4
    out = np.zeros((4, 32 * words), np.uint32)
    names = [f"%r{20 + i}" for i in range(words)]
    pack = "".join(f"mov.b64 %rd{10 + i}, {{{names[2 * i]}, {names[2 * i + 1]}}};\n" for i in range(words // 2))
    values = [f"%rd{10 + i}" for i in range(vector)] if type_.endswith("64") else names
    value = values[0] if vector == 1 else "{" + ", ".join(values) + "}"
    suffix = "" if vector == 1 else f".v{vector}"
    body = init() + f"@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {32 * size};\n" + ALL_MET
    body += "mov.u32 %r5, %cluster_ctarank; add.s32 %r6, %r5, 1; and.b32 %r6, %r6, 3;\n"
    body += f"mul.lo.s32 %r7, %r0, {size}; add.s32 %r8, %r2, %r7;\n"
    body += "mapa.shared::cluster.u32 %r9, %r8, %r6; mapa.shared::cluster.u32 %r10, %r1, %r6;\n"
    body += "".join(f"mad.lo.s32 {name}, %r5, 1000, {i}; mad.lo.s32 {name}, %r0, 10, {name};\n"
                    for i, name in enumerate(names)) + pack  # fmt: skip
    body += f"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes{suffix}.{type_} [%r9], {value}, [%r10];\n"
    body += wait() + f"mul.wide.u32 %rd3, %r5, {32 * size}; cvt.u64.u32 %rd4, %r7; add.s64 %rd3, %rd3, %rd4;\n"
    body += "add.s64 %rd3, %rd3, %rd0;\n"
    body += "".join(f"ld.shared.b32 %r20, [%r8+{4 * i}]; st.global.b32 [%rd3+{4 * i}], %r20;\n" for i in range(words))
    body += ALL_MET
    run_ptx(kernel(body, 1, SHARED), "k", 4, 32, [out], cluster=4, seed=seed)
    block, thread, word = np.ogrid[:4, :32, :words]
    expected = (block - 1) % 4 * 1000 + thread * 10 + word
    np.testing.assert_array_equal(out.reshape(4, 32, words), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_reductions_and_copies_into_another_block(seed: int | None) -> None:
    """Block 1 adds to a counter of block 0 (red.async), adds an array to it and copies one into it."""
    out = np.zeros(80, np.uint32)
    total = 32 * 4 + 128 + 128
    body = (
        init()
        + OWN_WORD
        + f"""
    mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p2, %r5, 0; mov.b32 %r6, 0;
    mad.lo.s32 %r7, %r5, 100, %r0;
    st.shared.b32 [%r4], %r7; st.shared.b32 [%r4+256], %r7; st.shared.b32 [%r2+512], %r6;
    @%p2 mov.b32 %r6, 1;
    fence.proxy.async.shared::cta;
    and.pred %p3, %p1, %p2;
    @%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {total};
    {ALL_MET}
    @%p2 bra FIRST;
    mov.b32 %r9, 0;
    mapa.shared::cluster.u32 %r10, %r1, %r9; mapa.shared::cluster.u32 %r11, %r2, %r9; mov.b32 %r12, 3;
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r11+512], %r12, [%r10];
    @!%p1 bra FIRST;
    cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.max.u32 [%r11], [%r2], 128, [%r10];
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r11+256], [%r2+256], 128, [%r10];
    FIRST:
    @!%p2 bra END;
    {wait()}
    add.s64 %rd4, %rd0, %rd3;
    ld.shared.b32 %r20, [%r4]; ld.shared.b32 %r21, [%r4+256]; ld.shared.b32 %r22, [%r2+512];
    st.global.b32 [%rd4], %r20; st.global.b32 [%rd4+128], %r21; @%p1 st.global.b32 [%rd0+256], %r22;
    END:
    {ALL_MET}
    """
    )
    run_ptx(kernel(body.replace("st.shared.b32 [%r2+512], %r6;", "@%p1 st.shared.b32 [%r2+512], %r6;"), 1, SHARED), "k", 2, 32, [out], cluster=2, seed=seed)  # noqa: E501  # fmt: skip
    np.testing.assert_array_equal(out[:32], np.arange(32) + 100)
    np.testing.assert_array_equal(out[32:64], np.arange(32) + 100)
    assert out[64] == 96


@pytest.mark.parametrize("seed", SEEDS)
def test_one_bulk_copy_for_all_blocks(seed: int | None) -> None:
    data, out = RNG.integers(0, 2**32, 64, dtype=np.uint32), np.zeros((4, 64), np.uint32)
    body = init() + OWN_WORD + "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;\n" + ALL_MET
    body += f"""
    mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p2, %r5, 2; and.pred %p2, %p2, %p1; mov.b16 %h1, 0xf;
    @%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%rd0], 256, [%r1], %h1;
    {wait()}
    mul.wide.u32 %rd4, %r5, 256; add.s64 %rd4, %rd4, %rd1; add.s64 %rd4, %rd4, %rd3;
    ld.shared.b32 %r6, [%r4]; st.global.b32 [%rd4], %r6;
    {ALL_MET}
    """  # noqa: E501
    run_ptx(kernel(body, 2, SHARED), "k", 4, 64, [data, out], cluster=4, seed=seed)
    for block in range(4):
        np.testing.assert_array_equal(out[block], data)
