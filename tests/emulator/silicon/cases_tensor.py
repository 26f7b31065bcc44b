"""Cases of copies between tensors and shared memory: tiles, interleaved ones, and columns of pixels (im2col).

A load leaves all of shared memory, which held other bytes before, and whether the mbarrier saw the bytes it expected.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

if __package__:
    from tests.emulator.silicon.cases import Bytes, Case, Map, chosen, random_bytes
else:
    from cases import Bytes, Case, Map, chosen, random_bytes  # type: ignore[import-not-found,no-redef]

SHARED = 8192
THREADS = 64
SIZES = {"u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "f32": 4, "f64": 8, "bf16": 2,
         "f32.ftz": 4, "tf32": 4, "tf32.ftz": 4}  # fmt: skip
FILL = (
    "mov.u32 %r2, smem; mov.u32 %r3, 0;\n"
    f"FILL: mad.lo.u32 %r4, %r0, 16, %r3; add.u32 %r5, %r4, %r2; mul.lo.u32 %r6, %r4, 0x9E3779B1;\n"
    "st.shared.v4.b32 [%r5], {%r6, %r4, %r6, %r4};\n"
    f"add.u32 %r3, %r3, {16 * THREADS}; setp.lt.u32 %p1, %r3, {SHARED}; @%p1 bra FILL;\n"
)
BRING = (
    FILL.replace("FILL", "BRING")
    .replace("mul.lo.u32 %r6, %r4, 0x9E3779B1;", "cvt.u64.u32 %rd4, %r4; add.u64 %rd4, %rd4, %rd0;")
    .replace(
        "st.shared.v4.b32 [%r5], {%r6, %r4, %r6, %r4};",
        "ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd4]; st.shared.v4.b32 [%r5], {%r10, %r11, %r12, %r13};",
    )
)
DUMP = (
    "mov.u32 %r3, 0;\n"
    "DUMP: mad.lo.u32 %r4, %r0, 16, %r3; add.u32 %r5, %r4, %r2; ld.shared.v4.b32 {%r6, %r7, %r8, %r9}, [%r5];\n"
    "cvt.u64.u32 %rd4, %r4; add.u64 %rd4, %rd4, %rd1; st.global.v4.b32 [%rd4], {%r6, %r7, %r8, %r9};\n"
    f"add.u32 %r3, %r3, {16 * THREADS}; setp.lt.u32 %p1, %r3, {SHARED}; @%p1 bra DUMP;\n"
)
WAIT = (
    "mov.u32 %r3, 0;\n"
    "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; add.u32 %r3, %r3, 1; setp.gt.u32 %p2, %r3, 2000;\n"
    "or.pred %p3, %p1, %p2; @!%p3 bra WAIT;\n"
    f"selp.u32 %r3, 1, 0, %p1; st.global.b32 [%rd1+{SHARED}], %r3;\n"
)


def box_bytes(map_: Map) -> int:
    """Of shared memory that a load writes."""
    size = SIZES[map_.element]
    if map_.lower:
        return map_.pixels * (map_.channels * size if not map_.interleave else 16 * map_.interleave)
    bytes_ = size if not map_.interleave else 16 * map_.interleave
    steps = map_.steps or (1,) * len(map_.box)
    for i, (count, step) in enumerate(zip(map_.box, steps, strict=True)):
        bytes_ *= count if i == 0 and not map_.interleave else -(-count // step)
    return bytes_


def load_case(
    name: str, map_: Map, at: tuple[int, ...], given: Bytes, offsets: tuple[int, ...] = (), gather: bool = False
) -> Case:
    rank = 2 if gather else len(map_.sizes)
    mode = ".im2col" if map_.lower else ".tile::gather4" if gather else ".tile"
    coordinates = "{" + ", ".join(map(str, at)) + "}"
    body = (
        FILL + "setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared::cta.b64 [bar], 1; fence.proxy.async; bar.sync 0;\n"
    )
    body += f"@!%p0 bra ISSUED; mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {box_bytes(map_)};\n"
    if offsets:
        body += "".join(f"mov.b16 %h{i}, {offset};\n" for i, offset in enumerate(offsets))
    tail = ", {" + ", ".join(f"%h{i}" for i in range(len(offsets))) + "}" if offsets else ""
    body += (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global{mode}.mbarrier::complete_tx::bytes "
        f"[smem], [%rd2, {coordinates}], [bar]{tail};\nISSUED:\n{WAIT}{DUMP}"
    )
    return Case(name, body, given, np.zeros(SHARED + 16, np.uint8), THREADS, SHARED, map_,
                declarations=".shared .align 8 .b64 bar;")  # fmt: skip


def store_case(
    name: str, map_: Map, at: tuple[int, ...], out: Bytes, reduction: str = "", given: Bytes | None = None
) -> Case:
    """Shared memory, full of what is given, into the tensor."""
    rank = len(map_.sizes)
    mode = ".im2col_no_offs" if map_.lower else ".tile"
    coordinates = "{" + ", ".join(map(str, at)) + "}"
    head = f"cp.reduce.async.bulk.tensor.{rank}d" if reduction else f"cp.async.bulk.tensor.{rank}d"
    body = BRING + "fence.proxy.async; bar.sync 0; setp.eq.u32 %p0, %r0, 0; @!%p0 bra END;\n"
    what = "." + reduction if reduction else ""
    body += f"{head}.global.shared::cta{what}{mode}.bulk_group [%rd2, {coordinates}], [smem];\n"
    body += "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nEND:"
    given = random_bytes(name, SHARED) if given is None else given
    return Case(name, body, given, out, THREADS, SHARED, map_)


def strides_of(element: str, sizes: tuple[int, ...], first: int = 0) -> tuple[int, ...]:
    """Rows that begin at multiples of 16 (of 32 for 32-byte interleaving: `first`)."""
    made, step = [], SIZES[element]
    for size in sizes[:-1]:
        step = -(-step * size // (first or 16)) * (first or 16)
        made.append(step)
    return tuple(made)


SPECIAL = np.array(
    [0, 1 << 31, 1, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x00801000, 0x00803000, 0x3F801000, 0x3F803000,
     0x3F800FFF, 0x3F801001, 0xBF801000, 0x7F7FFFFF, 0xFF7FF000, 0x7F7FEFFF, 0x7F800000, 0xFF800000, 0x7F800001,
     0xFFC00000, 0x7FFFFFFF, 0x007FF000, 0x00001000, 0x00003000, 0x80002FFF], np.uint32,
)  # fmt: skip
"""fp32: zeros, subnormal numbers, halfway between TF32 numbers, the greatest, infinities, NaN."""


def tensor(name: str, element: str, size: int) -> Bytes:
    """Random bytes; of types that change on the way half of them are special numbers."""
    made = random_bytes(name, size)
    if element in ("f32.ftz", "tf32", "tf32.ftz"):
        words = chosen(name + " special", SPECIAL, size // 4)
        other = made.view(np.uint32)
        made = np.where(random_bytes(name + " which", size // 4) < 128, words, other).astype(np.uint32).view(np.uint8)
    return made


def tile_cases() -> Iterator[Case]:
    for element in SIZES:
        size = SIZES[element]
        sizes = (80 // size * 2, 9)
        map_ = Map(element, sizes, strides_of(element, sizes), (64 // size, 5))
        for swizzle in ("none", "64", "128"):
            unit = 16 // size  # coordinates of dimension 0 are whole 16 bytes, or the chip stops
            for at in ((0, 0), (unit, 2), (-2 * unit, 6), (8 * unit, 7)):
                for nan in (False, True) if element[0] not in "us" else (False,):
                    one = Map(element, sizes, map_.strides, map_.box, swizzle=swizzle, nan_outside=nan)
                    name = f"tile {element} {swizzle} {at}{' nan' * nan}"
                    yield load_case(name, one, at, tensor(name, element, map_.strides[0] * 9))
                if swizzle != "64" and min(at) >= 0:  # a store to a negative coordinate stops the chip
                    name = f"tile store {element} {swizzle} {at}"
                    stored = Map(element, sizes, map_.strides, map_.box, swizzle=swizzle, in_out=True)
                    yield store_case(name, stored, at, random_bytes(name + " out", map_.strides[0] * 9))
    shapes = {
        1: ((400,), (256,)), 2: ((16, 40), (16, 31)), 3: ((24, 7, 5), (16, 6, 4)), 4: ((8, 5, 4, 6), (8, 4, 3, 4)),
        5: ((8, 3, 4, 3, 4), (8, 2, 3, 2, 3)),
    }  # fmt: skip
    for rank, (sizes, box) in shapes.items():
        for swizzle in ("none", "32", "64", "128"):
            for steps in dict.fromkeys(((1,) * rank, (1, 2, 1, 2, 3)[:rank], (2, 1, 3, 1, 1)[:rank])):
                for at in ((0,) * rank, (8, 2, 1, 3, 1)[:rank], (-8, -1, 2, -1, -2)[:rank]):
                    if rank == 1 and (swizzle != "none" or steps == (2,)):
                        continue
                    strides = strides_of("u16", sizes)
                    name = f"tile {rank}d {swizzle} {steps} {at}"
                    map_ = Map("u16", sizes, strides, box, steps, swizzle)
                    given = random_bytes(name, (strides[-1] if strides else 800) * sizes[-1] if rank > 1 else 800)
                    yield load_case(name, map_, at, given)
    for element, kinds in {
        "u32": ("add", "min", "max", "inc", "dec", "and", "or", "xor"), "s32": ("add", "min", "max"),
        "u64": ("add", "min", "max", "and", "or", "xor"), "s64": ("min", "max"), "f16": ("add", "min", "max"),
        "bf16": ("add", "min", "max"), "f32": ("add",), "f64": ("add",),
    }.items():  # fmt: skip
        for kind in kinds:
            sizes = (160 // SIZES[element], 9)
            strides = strides_of(element, sizes)
            map_ = Map(element, sizes, strides, (64 // SIZES[element], 5), swizzle="64", in_out=True)
            name = f"tile {kind} {element}"
            yield store_case(name, map_, (16 // SIZES[element], 6), random_bytes(name + " out", strides[0] * 9), kind)


PIXELS = {
    3: ((32, 7, 3), (-1,), (0,)),
    4: ((32, 6, 5, 3), (-1, -1), (-1, 0)),
    5: ((16, 4, 3, 4, 2), (-1, 0, -1), (0, -1, 0)),
}
"""Sizes (channels, width, height, depth, number), lower and upper corner."""


def im2col_maps() -> Iterator[tuple[str, Map]]:
    for rank, (sizes, lower, upper) in PIXELS.items():
        for element, swizzle, channels, pixels, corners, step in (
            ("u16", "none", 8, 40, 0, 1), ("u16", "32", 16, 33, 0, 1), ("u16", "64", 16, 20, 1, 1),
            ("f32", "64", 16, 32, 2, 1), ("u16", "none", 8, 40, 2, 2), ("u16", "none", 16, 17, 3, 3),
            ("u8", "none", 16, 64, 3, 1), ("bf16", "128", 16, 24, 1, 1),
        ):  # fmt: skip
            more = {0: (0, 0), 1: (-1, 0), 2: (0, -2), 3: (1, 1)}[corners]
            low = tuple(one + more[0] for one in lower)
            high = tuple(one + more[1] for one in upper)
            if any(sizes[1 + i] - 1 + high[i] < low[i] for i in range(rank - 2)):
                continue  # no place is left, and the driver refuses the map
            steps = (1, *(step,) * (rank - 2), 1)
            strides = strides_of(element, sizes)
            yield (
                f"{rank}d {element} {swizzle} {channels}x{pixels} {low} {high} {step}",
                Map(
                    element, sizes, strides, (), steps, swizzle, lower=low, upper=high, channels=channels, pixels=pixels
                ),
            )


def im2col_cases() -> Iterator[Case]:
    for name, map_ in im2col_maps():
        rank = len(map_.sizes)
        inner = rank - 2
        unit = 16 // SIZES[map_.element]
        # A column begins within the corners, or the chip stops.
        for c, start, n, offsets in (
            (0, "low", 0, (0, 0, 0)), (1, "low", 1, (1, 2, 1)), (-1, "mid", 0, (2, 0, 1)), (1, "high", 0, (0, 1, 2)),
            (3, "high", 2, (1, 1, 0)), (0, "low", -1, (0, 0, 0)),
        ):  # fmt: skip

            def coordinate(i: int, start: str = start, map_: Map = map_) -> int:
                low, end = map_.lower[i], map_.sizes[1 + i] - 1 + map_.upper[i]
                return {"low": low, "mid": (low + end) // 2, "high": end}[start]

            at = (c * unit, *(coordinate(i) for i in range(inner)), n)
            full = f"im2col {name} {start} {c * unit} {n} {offsets[:inner]}"
            given = random_bytes(full, map_.strides[-1] * map_.sizes[-1])
            yield load_case(full, map_, at, given, offsets[:inner])
        if map_.element == "u16":
            stored = Map(**(map_.__dict__ | {"in_out": True, "lower": (0,) * inner, "upper": (-1,) * inner}))
            for c, n in ((0, 0), (1, 1)):
                full = f"im2col {name} store {c * unit} {n}"
                at = (c * unit, *(0,) * inner, n)
                yield store_case(full, stored, at, random_bytes(full, map_.strides[-1] * map_.sizes[-1]))
            halves = Map(**(stored.__dict__ | {"element": "f16"}))
            numbers = np.resize(np.array([0, 0x3C, 0, 0x40, 0, 0x44], np.uint8), SHARED)
            out = np.zeros(map_.strides[-1] * map_.sizes[-1], np.uint8)
            yield store_case(f"im2col {name} add", halves, (0,) * rank, out, "add", numbers)


def cases() -> Iterator[Case]:
    yield from tile_cases()
    yield from im2col_cases()
