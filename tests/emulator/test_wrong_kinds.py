"""Values of wrong kinds for every argument of the entries: an error that names the argument, never one from below."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from msa_ops.emulator import (
    EmulatorFault,
    load_object,
    multicast,
    run_compiled,
    run_gfx950,
    run_ptx,
    run_ptx_on_devices,
)

TEXT = ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p) { ret; }\n"
WRONG = [
    None, object(), 1.5, -1, 2**70, True, "x", "", "\ud800", "a\0b", b"x", [], [1, 2, 3, 4], {}, {1: 2}, (1,),
    float("nan"), np.float32(1), np.int64(3), np.array(3), np.array([1, 2]), torch.tensor(3), torch.zeros(3), len, int,
    range(3), decimal.Decimal(1), 1j, iter([1]),
]  # fmt: skip
LAUNCH: dict[str, Any] = {
    "ptx": TEXT, "entry": "k", "grid": 1, "block": 32, "arguments": [np.zeros(64, np.int32)], "shared_memory": 0,
    "tensors": None, "max_instructions": 1000, "cluster": 1, "chip": "sm_90a", "seed": None, "sum_order": None,
    "threads": 1, "multiprocessors": None, "pending": (), "non_portable_cluster": False,
}  # fmt: skip
ON_DEVICES = {name: value for name, value in LAUNCH.items() if name != "pending"} | {
    "arguments": [LAUNCH["arguments"]] * 2, "peer_access": True,
}  # fmt: skip
OF_PTX = ("begin with `.version`",)


def complain(function: Callable[..., Any], values: dict[str, Any], name: str, accepted: tuple[str, ...] = ()) -> None:
    for wrong in WRONG:
        try:
            function(**{**values, name: wrong})
        except (ValueError, TypeError, NotImplementedError, OSError, EmulatorFault) as error:
            message = str(error)
            assert "incompatible function arguments" not in message, (name, wrong, message)
            stem = name.split("_")[0]
            assert stem in message or any(part in message for part in accepted), (name, wrong, message)


@pytest.mark.parametrize("name", LAUNCH)
def test_run_ptx(name: str) -> None:
    complain(run_ptx, LAUNCH, name, OF_PTX)


@pytest.mark.parametrize("name", ON_DEVICES)
def test_run_ptx_on_devices(name: str) -> None:
    complain(run_ptx_on_devices, ON_DEVICES, name, (*OF_PTX, "instructions than max_instructions allows"))


def test_multicast() -> None:
    complain(multicast, {}, "tensors")
    complain(lambda tensors: multicast([tensors]), {}, "tensors")


@pytest.mark.parametrize("name", ["kernel_name", "args", "ptx"])
def test_run_compiled(name: str) -> None:
    values: dict[str, Any] = {"kernel_name": "no such kernel", "ptx": TEXT, "args": []}
    complain(run_compiled, values, name, ("holds", "no such kernel"))


@pytest.mark.parametrize("name", ["path", "ptx", "header"])
def test_load_object(name: str) -> None:
    complain(load_object, {"path": __file__, "ptx": TEXT, "header": None}, name, ("not an object file", "No such file"))


@pytest.mark.parametrize("name", ["code_object", "kernel", "arguments"])
def test_run_gfx950(name: str) -> None:
    values: dict[str, Any] = {"code_object": b"abc", "kernel": "", "grid": 1, "block": 64, "arguments": []}
    complain(run_gfx950, values, name, ("code object",))


@pytest.mark.parametrize("text", [TEXT + "\0", TEXT + "\0 and more", TEXT.replace("ret", "\0ret")])
def test_nul_in_a_text(text: str) -> None:
    with pytest.raises(ValueError, match=f"^ptx: a NUL at {text.index(chr(0))}, where texts end for a driver$"):
        run_ptx(**{**LAUNCH, "ptx": text})
