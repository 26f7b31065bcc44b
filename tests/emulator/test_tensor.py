"""Tensor maps against an H200's driver, and copies of boxes against NumPy."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from msa_ops.emulator import EmulatorFault, Report, run_ptx, tensor_map
from msa_ops.emulator.tensor_map import SWIZZLES
from tests.emulator.programs import HEAD

RNG = np.random.default_rng(11)
SHARED = 16384
DRIVER_SWIZZLES = ("none", "32", "64", "128")


def test_bytes_of_the_driver() -> None:
    """What cuTensorMapEncodeTiled wrote on an H200, but for words from 15 on, which repeat what follows."""
    lines = (Path(__file__).parent / "tensor_maps_h200.jsonl").read_text().splitlines()
    assert len(lines) == 100
    for line in lines:
        element, address, sizes, strides, box, steps, swizzle, promotion, outside, expected = json.loads(line)
        made = tensor_map(
            address, element, sizes, strides, box, steps=steps, swizzle=DRIVER_SWIZZLES[swizzle],
            nan_outside=bool(outside), l2_promotion=promotion,
        )  # fmt: skip
        assert made.hex()[:120] == expected, line


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sizes": [], "strides": [], "box": []}, "1 to 5 sizes"),
        ({"sizes": [64, 0]}, "a size of 0 of dimension 1"),
        ({"box": [64, 257]}, "a box of 257"),
        ({"box": [7, 8]}, "14 bytes; accepted: multiples of 16"),
        ({"strides": [120]}, "a stride of 120"),
        ({"strides": [1 << 40]}, "a stride of"),
        ({"steps": [1, 9]}, "a step of 9"),
        ({"swizzle": "64", "box": [64, 8]}, "the swizzle takes 64 at most"),
        ({"memory": 0x1008}, "an address"),
        ({"element": "f8"}, "accepted: u8"),
        ({"swizzle": "256"}, "accepted: none"),
        ({"element": "s32", "nan_outside": True}, "NaN outside of a tensor of integers"),
        ({"l2_promotion": 4}, "accepted: 0 to 3"),
        ({"sizes": [64, 64, 9], "strides": [128, 8192], "box": [64, 256, 8]}, "a box of 262144 bytes"),
    ],
)
def test_maps_that_are_refused(changed: dict[str, Any], message: str) -> None:
    good = {"memory": 0x1000, "element": "f16", "sizes": [64, 64], "strides": [128], "box": [64, 8]}
    tensor_map(**good)
    with pytest.raises(ValueError, match=message):
        tensor_map(**(good | changed))


def program(rank: int, copy: str, before: str = "", after: str = "") -> str:
    """`copy` with MAP, C (coordinates), SMEM, BAR; then the shared memory goes to `out`. Coordinates in c0, c1, ..."""
    coordinates = "{" + ", ".join(f"%r{10 + i}" for i in range(rank)) + "}"
    loads = "".join(f"ld.param.u32 %r{10 + i}, [c{i}];\n" for i in range(rank))
    parameters = "".join(f", .param .u32 c{i}" for i in range(rank))
    copy = copy.replace("MAP", "%rd1").replace("C}", coordinates).replace("SMEM", "smem").replace("BAR", "bar")
    return f"""{HEAD}
.shared .align 1024 .b8 smem[{SHARED}];
.shared .align 8 .b64 bar;
.visible .entry k(.param .u64 out, .param .u64 in, .param .u32 bytes, .param .align 64 .b8 map[128]{parameters})
{{
.reg .pred %p<9>; .reg .b32 %r<32>; .reg .b64 %rd<32>; .reg .b16 %h<4>;
ld.param.u64 %rd0, [out]; ld.param.u64 %rd3, [in]; ld.param.u32 %r1, [bytes];
mov.b64 %rd2, map; cvta.param.u64 %rd1, %rd2;
{loads}
mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared::cta.b64 [bar], 1;
@%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
{before}
@!%p0 bra DONE;
{copy}
DONE:
{after}
ret;
}}"""


LOAD = (
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r1;\n"
    "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [SMEM], [MAP, C}}], [BAR];"
)
OUT = """
{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [bar], 0; @!done bra again; }
mov.b32 %r2, smem; mov.b32 %r3, 0;
COPY:
setp.ge.u32 %p1, %r3, %r1; @%p1 bra END;
add.s32 %r4, %r2, %r3; ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%r4];
cvt.u64.u32 %rd4, %r3; add.s64 %rd4, %rd4, %rd0; st.global.v4.b32 [%rd4], {%r5, %r6, %r7, %r8};
add.s32 %r3, %r3, 16; bra COPY;
END:
"""
IN = """
mov.b32 %r2, smem; mov.b32 %r3, 0;
COPY:
setp.ge.u32 %p1, %r3, %r1; @%p1 bra END;
cvt.u64.u32 %rd4, %r3; add.s64 %rd4, %rd4, %rd3; ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%rd4];
add.s32 %r4, %r2, %r3; st.shared.v4.b32 [%r4], {%r5, %r6, %r7, %r8};
add.s32 %r3, %r3, 16; bra COPY;
END:
fence.proxy.async.shared::cta;
bar.sync 0;
"""
STORED = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"


def swizzle_bytes(rows: NDArray[np.uint8], swizzle: str) -> NDArray[np.uint8]:
    """Where each byte of a region from address 0 goes: chunks change places within lines, by the line's number."""
    flat = rows.reshape(-1)
    place = np.arange(flat.size)
    line = place // 128
    if swizzle == "32":
        place = place ^ (line % 2 * 16)
    elif swizzle == "64":
        place = place ^ (line % 4 * 16)
    elif swizzle == "128":
        place = place ^ (line % 8 * 16)
    elif swizzle == "128_atom_32":
        place = place ^ (line % 4 * 32)
    elif swizzle == "128_atom_32_flip_8":
        place = place ^ (line % 4 * 32) ^ (line % 2 * 8)
    elif swizzle == "128_atom_64":
        place = place ^ (line % 2 * 64)
    out = np.zeros_like(flat)
    out[place] = flat
    return out


def box_of(tensor: NDArray[Any], start: list[int], box: list[int], steps: list[int], outside: Any) -> NDArray[Any]:
    """The box in NumPy order (dimension 0 last) of a tensor whose axes are in the order of the map."""
    counts = [-(-size // step) for size, step in zip(box, steps, strict=True)]
    out = np.full(counts[::-1], outside, tensor.dtype)
    for at in itertools.product(*(range(count) for count in counts)):
        index = [s + i * step for s, i, step in zip(start, at, steps, strict=True)]
        if all(0 <= i < size for i, size in zip(index, tensor.shape, strict=True)):
            out[at[::-1]] = tensor[tuple(index)]
    return out


def strided(sizes: list[int], dtype: Any, padding: int = 1) -> tuple[NDArray[Any], NDArray[Any], list[int]]:
    """Memory of random bytes, a tensor in it with axes in the order of the map, and the strides in bytes."""
    size = np.dtype(dtype).itemsize
    strides = [size]
    for extent in sizes[:-1]:
        strides.append(-(-strides[-1] * extent // 16) * 16 + 16 * padding)
    memory = RNG.integers(0, 256, strides[-1] * sizes[-1] + 16, dtype=np.uint8)
    offset = -memory.ctypes.data % 16
    memory = memory[offset : offset + strides[-1] * sizes[-1]]
    tensor = np.ndarray(tuple(sizes), dtype, memory, 0, tuple(strides))
    return memory, tensor, strides[1:]


def load(memory: NDArray[Any], map_bytes: bytes, start: list[int], count: int, copy: str = LOAD,
         seed: int | None = None) -> tuple[NDArray[np.uint8], Report]:  # fmt: skip
    out = np.zeros(count, np.uint8)
    text = program(len(start), copy.replace("{rank}", str(len(start))).replace("C}}", "C}"), after=OUT)
    report = run_ptx(text, "k", 1, 32, [out, None, count, map_bytes, *start], tensors={"memory": memory}, seed=seed)
    return out, report


CASES = [
    # element, dtype, sizes, box, start, steps, swizzle
    ("u8", np.uint8, [100], [64], [16], None, "none"),
    ("u8", np.uint8, [100], [64], [80], None, "none"),
    ("u8", np.uint8, [100], [64], [-32], None, "none"),
    ("f16", np.float16, [70, 20], [64, 8], [0, 0], None, "128"),
    ("f16", np.float16, [70, 20], [32, 8], [48, 16], None, "64"),
    ("f16", np.float16, [70, 20], [16, 16], [-8, -5], None, "32"),
    ("bf16", ml_dtypes.bfloat16, [90, 9], [64, 8], [40, 3], None, "128"),
    ("f32", np.float32, [33, 10], [32, 4], [4, 2], None, "128_atom_32"),
    ("f32", np.float32, [33, 10], [32, 8], [4, 7], None, "128_atom_64"),
    ("f32", np.float32, [33, 10], [32, 8], [8, 0], None, "128_atom_32_flip_8"),
    ("u32", np.uint32, [40, 6, 5], [32, 3, 4], [12, 4, -1], None, "128"),
    ("u64", np.uint64, [9, 4, 3, 3], [4, 2, 2, 2], [6, 1, 2, 0], None, "none"),
    ("f64", np.float64, [6, 3, 3, 2, 2], [4, 2, 2, 2, 2], [4, 2, 0, 1, 1], None, "32"),
    ("u16", np.uint16, [64, 30], [32, 16], [8, 2], [1, 3], "none"),
    ("u16", np.uint16, [64, 30], [16, 16], [-8, 20], [1, 4], "32"),
    ("u16", np.uint16, [64, 30, 7], [16, 6, 7], [8, 20, 0], [1, 4, 3], "none"),
    ("s32", np.int32, [64, 4], [64, 1], [60, 3], None, "none"),
    ("s32", np.int32, [64, 4], [64, 2], [64, 1], None, "none"),
]


@pytest.mark.parametrize(("element", "dtype", "sizes", "box", "start", "steps", "swizzle"), CASES)
def test_load(element: str, dtype: Any, sizes: list[int], box: list[int], start: list[int], steps: list[int] | None,
              swizzle: str) -> None:  # fmt: skip
    memory, tensor, strides = strided(sizes, dtype)
    expected = box_of(tensor, start, box, steps or [1] * len(box), 0)
    made = tensor_map(memory, element, sizes, strides, box, steps=steps, swizzle=swizzle)
    out, report = load(memory, made, start, expected.nbytes)
    rows = np.frombuffer(expected.tobytes(), np.uint8)
    np.testing.assert_array_equal(out, swizzle_bytes(rows, swizzle))
    inside = box_of(np.ones(tensor.shape, np.uint8), start, box, steps or [1] * len(box), 0)
    assert report.global_bytes_read == int(inside.sum()) * np.dtype(dtype).itemsize


@pytest.mark.parametrize("element, dtype", [("f16", np.float16), ("f32", np.float32), ("bf16", ml_dtypes.bfloat16)])
def test_nan_outside(element: str, dtype: Any) -> None:
    memory, tensor, strides = strided([40, 4], dtype)
    made = tensor_map(memory, element, [40, 4], strides, [32, 4], nan_outside=True)
    expected = box_of(tensor, [24, 2], [32, 4], [1, 1], 0)
    inside = box_of(np.ones((40, 4), bool), [24, 2], [32, 4], [1, 1], False)
    out, _ = load(memory, made, [24, 2], expected.nbytes)
    got = out.view(dtype).reshape(expected.shape)
    assert got[inside].tobytes() == expected[inside].tobytes()
    assert np.isnan(got[~inside].astype(np.float32)).all()


@pytest.mark.parametrize("element, packed, padded", [("b4x16", 8, 8), ("b4x16_p64", 8, 16), ("b6x16_p32", 12, 16)])
def test_narrow_elements(element: str, packed: int, padded: int) -> None:
    """Groups of 16 elements, spread out in shared memory where the type says so. The mbarrier counts them as packed."""
    rows = 4
    memory = RNG.integers(0, 256, (rows, 16 * packed + 16), dtype=np.uint8)
    memory = np.ascontiguousarray(memory)
    base = np.zeros(memory.size + 32, np.uint8)
    offset = -base.ctypes.data % 32
    view = base[offset : offset + memory.size].reshape(memory.shape)
    view[:] = memory
    made = tensor_map(view, element, [256, rows], [memory.shape[1]], [128, 3])
    copy = LOAD.replace("[bar], %r1", f"[bar], {3 * 8 * packed}")
    out, _ = load(view, made, [128, 2], 3 * 8 * padded, copy)
    if padded != packed:
        with pytest.raises(EmulatorFault, match="deadlock"):
            load(view, made, [128, 2], 3 * 8 * padded)
    expected = np.zeros((3, 8, padded), np.uint8)
    expected[:2, :, :packed] = memory[2:4, 8 * packed : 16 * packed].reshape(2, 8, packed)
    np.testing.assert_array_equal(out, expected.reshape(-1))


def test_gather_of_rows() -> None:
    memory, tensor, strides = strided([64, 20], np.float16)
    made = tensor_map(memory, "f16", [64, 20], strides, [64, 1], swizzle="128")
    copy = LOAD.replace("global.tile", "global.tile::gather4")
    out = np.zeros(4 * 128, np.uint8)
    text = program(5, copy.replace("{rank}", "2").replace("C}}", "C}"), after=OUT)
    run_ptx(text, "k", 1, 32, [out, None, out.size, made, 0, 7, 3, -1, 19], tensors={"memory": memory})
    expected = np.stack([tensor[:, 7], tensor[:, 3], np.zeros(64, np.float16), tensor[:, 19]])
    np.testing.assert_array_equal(out, swizzle_bytes(np.frombuffer(expected.tobytes(), np.uint8), "128"))


STORE = "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [MAP, C}}], [SMEM];\n" + STORED


def store(memory: NDArray[Any], map_bytes: bytes, start: list[int], data: NDArray[np.uint8], copy: str = STORE) -> None:
    text = program(len(start), copy.replace("{rank}", str(len(start))).replace("C}}", "C}"), before=IN)
    run_ptx(text, "k", 1, 32, [None, data, data.size, map_bytes, *start], tensors={"memory": memory})


@pytest.mark.parametrize(("element", "dtype", "sizes", "box", "start", "steps", "swizzle"), CASES)
def test_store(element: str, dtype: Any, sizes: list[int], box: list[int], start: list[int], steps: list[int] | None,
               swizzle: str) -> None:  # fmt: skip
    """Elements inside the tensor are written, and nothing else."""
    start = [max(0, coordinate) for coordinate in start]
    memory, tensor, strides = strided(sizes, dtype)
    before = memory.copy()
    steps = steps or [1] * len(box)
    shape = box_of(tensor, start, box, steps, 0).shape
    data = RNG.integers(0, 256, int(np.prod(shape)) * np.dtype(dtype).itemsize, dtype=np.uint8)
    values = data.view(dtype).reshape(shape)
    made = tensor_map(memory, element, sizes, strides, box, steps=steps, swizzle=swizzle)
    store(memory, made, start, swizzle_bytes(data, swizzle))
    expected = np.ndarray(tensor.shape, dtype, before, 0, tensor.strides)
    for at in itertools.product(*(range(count) for count in shape[::-1])):
        index = [s + i * step for s, i, step in zip(start, at, steps, strict=True)]
        if all(0 <= i < size for i, size in zip(index, sizes, strict=True)):
            expected[tuple(index)] = values[at[::-1]]
    np.testing.assert_array_equal(memory, before)


REDUCTIONS = [
    (kind, element)
    for kind, elements in {
        "add": ["u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"],
        "min": ["u32", "s32", "u64", "s64", "f16", "bf16"],
        "max": ["u32", "s32", "u64", "s64", "f16", "bf16"],
        "inc": ["u32"], "dec": ["u32"],
        "and": ["u32", "u64"], "or": ["s32", "u64"], "xor": ["u32", "u64"],
    }.items()
    for element in elements
]  # fmt: skip
DTYPES = {"u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "f16": np.float16,
          "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}  # fmt: skip


@pytest.mark.parametrize(("kind", "element"), REDUCTIONS)
def test_reductions(kind: str, element: str) -> None:
    dtype = np.dtype(DTYPES[element])
    memory, tensor, strides = strided([16, 6], dtype)
    shape = (4, 8)
    if dtype.kind in "ui":
        tensor[...] = RNG.integers(0, 50, tensor.shape).astype(dtype) - (25 if dtype.kind == "i" else 0)
        values = RNG.integers(0, 50, shape).astype(dtype) - dtype.type(25 if dtype.kind == "i" else 0)
    else:
        tensor[...] = RNG.normal(size=tensor.shape).astype(dtype)
        values = RNG.normal(size=shape).astype(dtype)
    old = tensor.copy()
    made = tensor_map(memory, element, [16, 6], strides, [8, 4])
    copy = STORE.replace("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor").replace(
        "shared::cta.tile", f"shared::cta.{kind}.tile"
    )
    store(memory, made, [8, 1], np.frombuffer(values.tobytes(), np.uint8).copy(), copy)
    a, b = old[8:16, 1:5], values.T
    if kind == "add":
        expected = (a + b).astype(dtype) if dtype.itemsize > 2 else (a.astype("f4") + b.astype("f4")).astype(dtype)
    elif kind == "inc":
        expected = np.where(a >= b, 0, a + 1).astype(dtype)
    elif kind == "dec":
        expected = np.where((a == 0) | (a > b), b, a - 1).astype(dtype)
    else:
        function = {"min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
                    "xor": np.bitwise_xor}[kind]  # fmt: skip
        expected = function(a, b)
    assert tensor[8:16, 1:5].tobytes() == expected.tobytes()
    tensor[8:16, 1:5] = old[8:16, 1:5]
    np.testing.assert_array_equal(tensor, old)


@pytest.mark.parametrize(("copy", "start", "message"), [
    (LOAD, [4, 0], "coordinate 4 of dimension 0, which is no multiple of 16 bytes"),
    (STORE, [0, -1], "a store from coordinate -1 on, which is negative"),
    (STORE, [-8, 0], "a store from coordinate -8 on"),
])  # fmt: skip
def test_coordinates_at_which_a_chip_stops(copy: str, start: list[int], message: str) -> None:
    """An H200 gives an illegal instruction for these (tests/emulator/silicon, by trial)."""
    memory, _, strides = strided([64, 4], np.uint16)
    made = tensor_map(memory, "u16", [64, 4], strides, [32, 2])
    with pytest.raises(EmulatorFault, match=message) as raised:
        if copy == LOAD:
            load(memory, made, start, 128)
        else:
            store(memory, made, start, np.zeros(128, np.uint8))
    assert raised.value.kind == "asynchronous operation"


def test_rows_narrower_than_the_swizzle() -> None:
    """They fill the swizzle's width in shared memory, whose rest keeps what it holds."""
    memory, tensor, strides = strided([64, 6], np.uint16)
    made = tensor_map(memory, "u16", [64, 6], strides, [32, 6], swizzle="128")
    copy = LOAD.replace("[bar], %r1", "[bar], 384")
    out, _ = load(memory, made, [8, 0], 6 * 128, copy)
    rows = np.zeros((6, 64), np.uint16)
    rows[:, :32] = tensor[8:40].T
    kept = np.zeros((6, 64), np.uint16)
    kept[:, :32] = 0xFFFF
    wanted, mask = (swizzle_bytes(part.view(np.uint8), "128") for part in (rows, kept))
    np.testing.assert_array_equal(out & mask, wanted)


def test_maps_are_changed_in_shared_memory() -> None:
    """A map is patched field by field, copied to global memory, and used."""
    memory, tensor, strides = strided([64, 20], np.float16)
    other = tensor_map(0x10000, "f32", [1, 1, 1], [16, 16], [4, 1, 1], steps=[2, 1, 1], swizzle="32", nan_outside=True)
    base = np.zeros(512, np.uint8)
    place = base[-base.ctypes.data % 128 :][:128]
    fields = [
        ("global_address.shared::cta.b1024.b64", "", "%rd3"), ("rank.shared::cta.b1024.b32", "", "1"),
        ("box_dim.shared::cta.b1024.b32", "0, ", "32"), ("box_dim.shared::cta.b1024.b32", "1, ", "8"),
        ("global_dim.shared::cta.b1024.b32", "0, ", "64"), ("global_dim.shared::cta.b1024.b32", "1, ", "20"),
        ("global_stride.shared::cta.b1024.b64", "0, ", str(strides[0])),
        ("element_stride.shared::cta.b1024.b32", "0, ", "1"), ("elemtype.shared::cta.b1024.b32", "", "6"),
        ("interleave_layout.shared::cta.b1024.b32", "", "0"), ("swizzle_mode.shared::cta.b1024.b32", "", "2"),
        ("fill_mode.shared::cta.b1024.b32", "", "0"),
    ]  # fmt: skip
    replaced = "".join(f"@%p0 tensormap.replace.tile.{name} [smem], {order}{value};\n" for name, order, value in fields)
    before = (
        "".join(
            f"ld.param.v4.b32 {{%r20, %r21, %r22, %r23}}, [map+{i}];\n"
            f"@%p0 st.shared.v4.b32 [smem+{i}], {{%r20, %r21, %r22, %r23}};\n"
            for i in range(0, 128, 16)
        )
        + replaced
        + "bar.sync 0;\n"
        + "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
        + " [%rd0], [smem], 128;\n"
        + "fence.proxy.tensormap::generic.acquire.gpu [%rd0], 128;\nfence.proxy.async; bar.sync 0;"
    )
    copy = LOAD.replace("MAP", "%rd0").replace("SMEM", "smem+1024").replace("{rank}", "2").replace("C}}", "C}")
    text = program(2, copy, before=before, after=OUT.replace("mov.b32 %r2, smem;", "add.s32 %r2, %r2, 1024;", 1)
                   .replace("%rd4, %rd4, %rd0", "%rd4, %rd4, %rd5").replace("add.s32 %r2, %r2, 1024;",
                   "mov.b32 %r2, smem; add.s32 %r2, %r2, 1024; add.s64 %rd5, %rd0, 128;"))  # fmt: skip
    out = np.zeros(128 + 512 + 128, np.uint8)
    aligned = out[-out.ctypes.data % 128 :][: 128 + 512]
    run_ptx(text, "k", 1, 32, [aligned, memory, 512, other, 8, 3])
    del place
    expected = tensor_map(memory, "f16", [64, 20], strides, [32, 8], swizzle="64")
    words = np.frombuffer(expected, np.uint32), aligned[:128].view(np.uint32)
    relevant = [0, 1, 2, 3, 8, 9, 13]
    np.testing.assert_array_equal(words[0][relevant], words[1][relevant])
    box = box_of(tensor, [8, 3], [32, 8], [1, 1], 0)
    np.testing.assert_array_equal(aligned[128:], swizzle_bytes(np.frombuffer(box.tobytes(), np.uint8), "64"))


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_multicast(seed: int | None) -> None:
    """Block 1 of the cluster loads for itself and for block 0, whose own mbarrier counts."""
    memory, tensor, strides = strided([64, 20], np.float16)
    made = tensor_map(memory, "f16", [64, 20], strides, [64, 4])
    copy = """
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r1;
    mov.u32 %r20, %cluster_ctarank; setp.eq.u32 %p3, %r20, 0; mov.b16 %h1, 3; mov.b32 %r21, smem;
    mov.b32 %r22, bar;
    @!%p3 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
      [%r21], [MAP, C}], [%r22], %h1;
    """
    after = OUT.replace("mov.b32 %r3, 0;", "mov.b32 %r3, 0; mov.u32 %r20, %ctaid.x; mul.wide.u32 %rd6, %r20, 512;\n"
                        "add.s64 %rd0, %rd0, %rd6;")  # fmt: skip
    text = program(2, copy, before="barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
                   after=after + "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;")  # fmt: skip
    out = np.zeros((2, 512), np.uint8)
    run_ptx(text, "k", 2, 32, [out, None, 512, made, 0, 5], tensors={"memory": memory}, cluster=2, seed=seed)
    box = box_of(tensor, [0, 5], [64, 4], [1, 1], 0)
    for block in range(2):
        assert out[block].tobytes() == box.tobytes()


FAULTS = {
    "bytes": ("deadlock", LOAD.replace("[bar], %r1", "[bar], 4080"), {}),
    "no_bytes": ("race", LOAD.replace("[bar], %r1;\n", "[bar], 0;\n"), {}),
    "bytes_too_late": ("mbarrier", "\n".join(LOAD.replace("[bar], %r1;", "[bar], 0;").split("\n")[::-1]), {}),
    "alignment": ("misaligned", LOAD.replace("[SMEM]", "[SMEM+64]"), {}),
    "rank": ("asynchronous operation", LOAD, {"sizes": [64], "strides": [], "box": [64]}),
    "bounds": ("out of bounds", LOAD, {"sizes": [64, 21]}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str) -> None:
    kind, copy, changed = FAULTS[name]
    memory, _, strides = strided([64, 20], np.float16)
    arguments: dict[str, Any] = {"sizes": [64, 20], "strides": strides, "box": [64, 8]}
    good = tensor_map(memory, "f16", **arguments)
    load(memory, good, [0, 14], 1024)
    with pytest.raises(EmulatorFault) as caught:
        load(memory, tensor_map(memory, "f16", **(arguments | changed)), [0, 14], 1024, copy)
    assert caught.value.kind == kind


def test_swizzles_are_all_tried() -> None:
    assert {case[-1] for case in CASES} == set(SWIZZLES)
