from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from msa_ops import _C
from msa_ops.launch_arguments import note, pointer, record
from msa_ops.registry.dispatch import READER

DEVICE = 0
MISSING = object()  # with it, `run` answers without launching


def aligned(*shape: int, fill: float = 0.0) -> torch.Tensor:
    """At a multiple of 128 bytes, which is part of a signature and which torch promises on GPUs alone."""
    size = math.prod(shape)
    pool = torch.full((size + 32,), fill)
    start = -pool.data_ptr() % 128 // 4
    return pool[start : start + size].view(shape)


def replays() -> _C.CallReplays:
    return _C.CallReplays(READER, ["x", "y", "scale"], ["y"], 128)


def launches_of(*values: Any) -> list[tuple[int, tuple[int, ...]]]:
    with record() as launches:
        note(3, tuple(pointer(value) if isinstance(value, torch.Tensor) else value for value in values))
    return launches


def remember(
    calls: _C.CallReplays, args: tuple[Any, ...], kwargs: dict[str, Any], *values: Any, generation: int = 1
) -> bool:
    return calls.remember(args, kwargs, None, None, False, generation, (), None, DEVICE, launches_of(*values), MISSING)


def found(calls: _C.CallReplays, args: tuple[Any, ...], kwargs: dict[str, Any], generation: int = 1) -> bool:
    answer = calls.run(args, kwargs, None, None, False, generation)
    assert answer is None or answer is MISSING
    return answer is MISSING


def test_a_call_of_equal_metadata_is_found_and_no_other() -> None:
    x, y = aligned(4, 8), aligned(4, 8)
    calls = replays()
    assert not found(calls, (x, y), {"scale": 1.0})
    assert remember(calls, (x, y), {"scale": 1.0}, x, 7, y)
    assert len(calls) == 1
    assert found(calls, (aligned(4, 8, fill=1.0), aligned(4, 8, fill=2.0)), {"scale": 1.0})
    beside = aligned(40)[1:33].view(4, 8)
    others: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x, y), {"scale": 2.0}),
        ((x, y), {"scale": 1}),
        ((x, y), {"y": 1.0}),
        ((x, y, 1.0), {}),
        ((x, y.t().contiguous().t()), {"scale": 1.0}),
        ((x, y.double()), {"scale": 1.0}),
        ((x, x), {"scale": 1.0}),
        ((beside, y), {"scale": 1.0}),
        ((x[:3], y), {"scale": 1.0}),
    ]
    for args, kwargs in others:
        assert not found(calls, args, kwargs)
    assert calls.run((x, y), {"scale": 1.0}, None, "reference", False, 1) is None
    assert calls.run((x, y), {"scale": 1.0}, (y,), None, False, 1) is None


def test_calls_are_forgotten_when_the_registry_changes() -> None:
    x, y = torch.zeros(4), torch.zeros(4)
    calls = replays()
    assert remember(calls, (x, y), {}, x, y)
    assert not found(calls, (x, y), {}, generation=2)
    assert len(calls) == 0


def test_the_environment_may_ask_for_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.zeros(4), torch.zeros(4)
    calls = replays()
    assert remember(calls, (x, y), {}, x, y)
    monkeypatch.setenv("MSA_OPS_BACKEND", "reference")
    assert not found(calls, (x, y), {})
    monkeypatch.delenv("MSA_OPS_BACKEND")
    assert found(calls, (x, y), {})


def test_calls_that_are_not_plain_are_not_kept() -> None:
    x, y = torch.zeros(4), torch.zeros(4, requires_grad=True)
    calls = replays()
    assert not calls.remember((x, y), {}, None, None, True, 1, (), None, DEVICE, launches_of(x, y), MISSING)
    assert not remember(calls, (x, torch._neg_view(x)), {}, x)


def test_an_address_belongs_to_one_tensor_that_is_known() -> None:
    x, y = torch.zeros(4, 8), torch.zeros(4, 8)
    calls = replays()
    assert not remember(calls, (x, x), {}, x), "the same tensor twice: either may move"
    assert not remember(calls, (x, y), {}, x.view(32)), "a view that is no argument"
    assert not remember(calls, (x, y), {}, x.data_ptr() + 4), "an address without its tensor"
    assert not remember(calls, (x, y), {}, pointer(x)), "recorded by nobody"
    assert remember(calls, (x, y), {}, x, y, None or 0, 5)
    assert len(calls) == 1


def test_work_of_torch_between_launches_is_seen() -> None:
    x = torch.zeros(4, 8)
    with record() as launches:
        note(3, (pointer(x.t()[1:].unsqueeze(0).transpose(0, 1)),))
    assert len(launches) == 1 and not launches.others
    with record() as launches:
        x.fill_(1.0)
    assert launches.others
    with record() as launches:
        torch.empty(4)
    assert launches.others


def test_what_is_remembered_is_launched() -> None:
    """Without a driver the launch fails, and says so; with one there is no kernel of that number to start."""
    if torch.cuda.is_available():
        pytest.skip(
            "with a GPU kernel 3 of the build would run on memory of the CPU; tests/silicon/test_replays.py launches"
        )
    x, y = torch.zeros(4), torch.zeros(4)
    calls = replays()
    assert calls.remember((x, y), {}, None, None, False, 1, (), None, DEVICE, launches_of(x, y), None)
    with pytest.raises((RuntimeError, IndexError, NotImplementedError)):
        calls.run((x, y), {}, None, None, False, 1)


def test_what_is_missing_is_made_first() -> None:
    x, y, made = torch.zeros(4), torch.zeros(4), torch.zeros(4)
    calls = replays()
    launches = launches_of(x, made)
    assert not calls.remember((x, y), {}, None, None, False, 1, (), None, DEVICE, launches, MISSING)
    assert calls.remember((x, y), {}, None, None, False, 1, (made,), None, DEVICE, launches, MISSING)
    assert calls.run((x, y), {}, None, None, False, 1) is MISSING
    assert not calls.run_with((y, x, 2.0), {}, None, None, False, (made,)), "a call that was not made before"


def test_an_address_inside_of_a_tensor_knows_it() -> None:
    x, y = torch.zeros(4, 8), torch.zeros(4, 8)
    with record() as launches:
        note(3, (pointer(x), pointer(y) + 64))
    assert remember_launches(replays(), (x, y), launches)
    with record() as launches:
        note(3, (pointer(x), pointer(y) + 128))
    assert not remember_launches(replays(), (x, y), launches), "behind its end"


def remember_launches(calls: _C.CallReplays, args: tuple[Any, ...], launches: list[Any]) -> bool:
    return calls.remember(args, {}, None, None, False, 1, (), None, DEVICE, launches, MISSING)


def test_an_obstacle_bars_the_short_way() -> None:
    standing = [False]
    calls = _C.CallReplays(READER, ["x", "y", "scale"], ["y"], 128, [lambda: None, lambda: 0, lambda: standing[0]])
    x, y = torch.zeros(4), torch.zeros(4)
    assert remember(calls, (x, y), {}, x, y)
    assert found(calls, (x, y), {})
    standing[0] = True
    assert not found(calls, (x, y), {})
