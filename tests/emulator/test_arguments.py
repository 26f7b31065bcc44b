"""What the entries of the emulator refuse, before anything is launched and without an abort of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import numpy as np
import pytest
import torch

import msa_ops
from msa_ops.emulator import run_gfx950, run_gfx950_on_devices, run_ptx, run_ptx_on_devices, tensor_map
from msa_ops.registry.virtual import Region

PTX = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry add(.param .u64 p_data, .param .{type} p_value)
{{
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd0, [p_data];
  ld.param.{type} %r2, [p_value];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd1, %r0, 4;
  add.s64 %rd2, %rd0, %rd1;
  ld.global.b32 %r1, [%rd2];
  add.s32 %r1, %r1, %r2;
  st.global.b32 [%rd2], %r1;
  ret;
}}
""".format(type="b32")


def run(**changes: Any) -> Any:
    given: dict[str, Any] = {
        "ptx": PTX,
        "entry": "add",
        "grid": 1,
        "block": 32,
        "arguments": [np.zeros(32, dtype=np.int32), 5],
    }
    return run_ptx(**(given | changes))


def test_numbers_of_numpy_are_numbers_not_memory() -> None:
    data = np.zeros(32, dtype=np.int32)
    run(arguments=[data, np.int64(7)], grid=np.int64(1), block=(np.int32(32), 1))
    assert (data == 7).all()
    run(arguments=[data, np.float32(1.5)])
    assert (data == 7 + 0x3FC00000).all()


def no_memory(value: Any) -> Callable[[], Any]:
    return lambda: run(arguments=[value, 5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (no_memory(np.array([None] * 32)), "argument 0: an array of Python objects; accepted: numbers"),
        (no_memory(torch.zeros(32).to_sparse()), "argument 0: Tensor, torch.sparse_coo; accepted: plain strided"),
        (no_memory(torch.zeros(32, dtype=torch.complex64).conj()), "argument 0: conjugated or negated"),
        (no_memory(torch.empty(32, device="meta")), "argument 0: on meta; accepted: tensors on the CPU"),
        (lambda: run(seed=-1), "seed: -1; accepted: 0 to "),
        (lambda: run(seed="a"), "seed: 'a'; accepted: integers, 0 to "),
        (lambda: run(sum_order=2**64), "sum_order: 18446744073709551616; accepted"),
        (lambda: run(max_instructions=-1), "max_instructions: -1; accepted: 1 to"),
        (lambda: run(max_instructions=1.5), "max_instructions: 1.5; accepted: integers, 1 to"),
        (lambda: run(threads=-1), "threads: -1; accepted: 1 to 1024"),
        (lambda: run(shared_memory=-1), "shared memory: -1; accepted"),
        (lambda: run(grid=1.5), "grid: 1.5; accepted: one to three positive numbers"),
        (lambda: run(block="32"), "block: '32'; accepted: one to three positive numbers"),
        (lambda: run(tensors={"argument 0": np.zeros(4)}), "tensors: 'argument 0'; accepted: strings that name no"),
        (lambda: run(tensors={3: np.zeros(4)}), "tensors: 3; accepted: strings"),
        (lambda: run(ptx=PTX + "\ud800"), r"ptx: '\\ud800' at \d+, which is half a character"),
        (lambda: run(arguments=[None, 1e300]), r"argument 1: 1e\+300 does not fit into fp32"),
        (lambda: run_ptx_on_devices(PTX, "add", 1, 32, [], seed=-1), "seed: -1"),
        (lambda: run_gfx950(b"", "", 1, 64, [], lds=-1), "shared memory: -1"),
        (lambda: run_gfx950_on_devices(b"", "", 1, 64, []), "arguments: none; accepted: those of at least one device"),
        (lambda: tensor_map(-16, "f16", (64,), (), (8,)), "memory: -16; accepted"),
        (lambda: tensor_map(0, "f16", (64, 64), (-16,), (8, 8)), r"strides\[0\]: -16; accepted"),
        (lambda: tensor_map(0, "f16", (64.0,), (), (8,)), r"sizes\[0\]: 64.0; accepted"),
        (lambda: tensor_map(0, "f16", (64,), (), (8,), l2_promotion=-1), "l2_promotion: -1; accepted"),
    ],
)
def test_refused_values(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: run(ptx=PTX.encode()), "ptx: bytes; accepted: str"),
        (lambda: run(tensors=[np.zeros(4)]), "tensors: list; accepted: a mapping"),
        (lambda: run(tensors={"more": 3}), "more: int; accepted: CPU tensors and NumPy arrays"),
        (lambda: run_gfx950("kernel.hsaco", "", 1, 64, []), "code_object: str; accepted: bytes"),
        (lambda: tensor_map(None, "f16", (64,), (), (8,)), "memory: NoneType; accepted: CPU tensors"),
    ],
)
def test_refused_types(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_a_fake_tensor_has_no_memory() -> None:
    from torch._subclasses import FakeTensorMode

    with pytest.raises(ValueError, match=r"argument 0: FakeTensor, torch\.strided; accepted: plain"):
        run(arguments=[FakeTensorMode().from_tensor(torch.zeros(32)), 5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arch": None}, "arch: None; accepted: sm_90a"),
        ({"seed": -1}, "seed: -1; accepted"),
        ({"max_instructions": 0}, "max_instructions: 0; accepted"),
        ({"multiprocessors": 1.5}, "multiprocessors: 1.5; accepted: integers, 1 to 1024"),
        ({"threads": 0}, "threads: 0; accepted"),
    ],
)
def test_emulate_refuses_at_its_entry(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message), msa_ops.emulate(**options):
        pytest.fail("the block ran")


def test_calls_of_two_threads_on_one_chip_keep_their_own_memory() -> None:
    """The second thread's call is still in progress when the first one's ends."""
    from msa_ops.emulator import chip as module

    entered, left = threading.Event(), threading.Event()
    found: list[Any] = []

    def other() -> None:
        with chip.call("two", "b", [Region("y", torch.zeros(8), True)]):
            entered.set()
            left.wait(10)
            found.append(module._call.get())

    with msa_ops.emulate("sm_90a") as chip:
        thread = threading.Thread(target=copy_context().run, args=(other,))
        with chip.call("one", "a", [Region("x", torch.zeros(4), True)]):
            thread.start()
            assert entered.wait(10)
            current = module._call.get()
            assert current is not None and (current.op, current.backend) == ("one", "a")
        left.set()
        thread.join()
    (call,) = found
    assert call.op == "two" and call.memory[0][1] == 32


@pytest.mark.parametrize("value", [torch.tensor(2.0), np.zeros(4)])
def test_an_address_is_no_number_on_gfx950(value: Any) -> None:
    from msa_ops.emulator.gfx950 import _bytes_of

    with pytest.raises(ValueError, match=r"argument 1: .*, whose address would be passed; the argument has 4 bytes"):
        _bytes_of(1, value, 4)
    assert len(_bytes_of(1, value, 8)) == 8
