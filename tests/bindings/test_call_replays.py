from __future__ import annotations

import contextvars
import math
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from msa_ops import _C
from msa_ops.launch_arguments import note, pointer, record
from msa_ops.registry.dispatch import READER

DEVICE = 0
LONG_WAY = object()
CONTEXT: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("wishes", default=())


class Remembered(Exception):
    """Raised where results are made for a call that was found: nothing is launched then."""


def found_it() -> None:
    raise Remembered


def aligned(*shape: int, fill: float = 0.0) -> torch.Tensor:
    """At a multiple of 128 bytes, which is part of a signature and which torch promises on GPUs alone."""
    size = math.prod(shape)
    pool = torch.full((size + 32,), fill)
    start = -pool.data_ptr() % 128 // 4
    return pool[start : start + size].view(shape)


def replays() -> _C.CallReplays:
    return _C.CallReplays(READER, ["x", "y", "scale"], ["y"], 128)


def entry(
    calls: _C.CallReplays, obstacles: list[Callable[[], object]] | None = None, generation: int = 1, grad: bool = False
) -> Callable[..., Any]:
    """As an op's public function has it; the long way answers `LONG_WAY`."""
    registry = SimpleNamespace(generation=generation)
    state = _C.TorchState(obstacles or [], lambda: grad)
    return _C.op_entry(calls, lambda *_, **__: LONG_WAY, CONTEXT, registry, state)


def launches_of(*values: Any) -> list[tuple[int, tuple[int, ...]]]:
    with record() as launches:
        note(3, tuple(pointer(value) if isinstance(value, torch.Tensor) else value for value in values))
    return launches


def remember(
    calls: _C.CallReplays, args: tuple[Any, ...], kwargs: dict[str, Any], *values: Any, generation: int = 1
) -> bool:
    return calls.remember(args, kwargs, None, None, False, generation, (), None, DEVICE, launches_of(*values), found_it)


def found(calls: _C.CallReplays, args: tuple[Any, ...], kwargs: dict[str, Any], **how: Any) -> bool:
    try:
        assert entry(calls, **how)(*args, **kwargs) is LONG_WAY
    except Remembered:
        return True
    return False


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
        ((x, y.t().contiguous().t()), {"scale": 1.0}),
        ((x, y.double()), {"scale": 1.0}),
        ((x, x), {"scale": 1.0}),
        ((beside, y), {"scale": 1.0}),
        ((x[:3], y), {"scale": 1.0}),
    ]
    for args, kwargs in others:
        assert not found(calls, args, kwargs)
    assert found(calls, (x,), {"scale": 1.0, "y": y}), "by keyword it is the same call"
    assert found(calls, (x, y, 1.0), {})
    assert found(calls, (), {"out": None, "y": y, "backend": None, "scale": 1.0, "x": x})
    for more in ({"backend": "reference"}, {"out": y}, {"out": (y,)}, {"out": [y]}, {"x": x}, {"other": 1}):
        assert not found(calls, (x, y), {"scale": 1.0, **more})
    assert not found(calls, (x, y, 1.0, 1.0), {})


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
    assert not calls.remember((x, y), {}, None, None, True, 1, (), None, DEVICE, launches_of(x, y), found_it)
    assert remember(calls, (x, y), {}, x, y)
    assert found(calls, (x, y), {}) and not found(calls, (x, y), {}, grad=True)
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
        entry(calls)(x, y)


def test_what_is_missing_is_made_first() -> None:
    x, y, made = torch.zeros(4), torch.zeros(4), torch.zeros(4)
    calls = replays()
    launches = launches_of(x, made)
    assert not calls.remember((x, y), {}, None, None, False, 1, (), None, DEVICE, launches, found_it)
    assert calls.remember((x, y), {}, None, None, False, 1, (made,), None, DEVICE, launches, found_it)
    assert found(calls, (x, y), {})


def test_an_address_inside_of_a_tensor_knows_it() -> None:
    x, y = torch.zeros(4, 8), torch.zeros(4, 8)
    with record() as launches:
        note(3, (pointer(x), pointer(y) + 64))
    assert remember_launches(replays(), (x, y), launches)
    with record() as launches:
        note(3, (pointer(x), pointer(y) + 128))
    assert not remember_launches(replays(), (x, y), launches), "behind its end"


def remember_launches(calls: _C.CallReplays, args: tuple[Any, ...], launches: list[Any]) -> bool:
    return calls.remember(args, {}, None, None, False, 1, (), None, DEVICE, launches, found_it)


def test_an_obstacle_bars_the_short_way() -> None:
    standing = [False]
    obstacles: list[Callable[[], object]] = [lambda: None, lambda: 0, lambda: standing[0]]
    calls = replays()
    x, y = torch.zeros(4), torch.zeros(4)
    assert remember(calls, (x, y), {}, x, y)
    assert found(calls, (x, y), {}, obstacles=obstacles)
    standing[0] = True
    assert not found(calls, (x, y), {}, obstacles=obstacles)


def test_a_context_bars_the_short_way() -> None:
    calls = replays()
    x, y = torch.zeros(4), torch.zeros(4)
    assert remember(calls, (x, y), {}, x, y)
    token = CONTEXT.set(("reference",))
    assert not found(calls, (x, y), {})
    CONTEXT.reset(token)
    assert found(calls, (x, y), {})


def test_what_an_obstacle_raises_arrives() -> None:
    def obstacle() -> object:
        raise OSError("no")

    calls = replays()
    x, y = torch.zeros(4), torch.zeros(4)
    assert remember(calls, (x, y), {}, x, y)
    with pytest.raises(OSError, match="no"):
        entry(calls, [obstacle])(x, y)
    assert found(calls, (x, y), {})


def test_the_long_way_gets_the_call_as_it_is() -> None:
    seen = []
    call = _C.op_entry(
        replays(),
        lambda *args, **kwargs: seen.append((args, kwargs)),
        CONTEXT,
        SimpleNamespace(generation=1),
        _C.TorchState([], bool),
    )
    x = torch.zeros(4)
    call(x, 1, scale=2.0, out=None, other="z")
    assert seen[0][0][0] is x and seen == [((x, 1), {"scale": 2.0, "out": None, "other": "z"})]


def test_a_call_inside_of_a_call() -> None:
    """Making results may run anything, here the same op on tensors of other metadata."""
    calls = replays()
    x, y, other = torch.zeros(4), torch.zeros(4), torch.zeros(2, 4)
    call = entry(calls)
    answers = []

    def make() -> None:
        answers.append(call(other, other, 3.0))
        found_it()

    assert calls.remember((x, y), {}, None, None, False, 1, (), None, DEVICE, launches_of(x, y), make)
    with pytest.raises(Remembered):
        call(x, y)
    assert answers == [LONG_WAY]


def test_threads_find_their_own_calls() -> None:
    """Many threads, each with calls of metadata of its own, while others are remembered and forgotten."""
    calls = replays()
    wrong: list[int] = []

    def work(size: int) -> None:
        x, y = torch.zeros(size), torch.zeros(size)

        def mine() -> None:
            raise Remembered(size)

        for _ in range(300):
            calls.remember((x, y), {}, None, None, False, 1, (), None, DEVICE, launches_of(x, y), mine)
            try:
                entry(calls)(x, y)
            except Remembered as error:
                if error.args != (size,):
                    wrong.append(size)
            else:
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(size,)) for size in range(4, 12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
