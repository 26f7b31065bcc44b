from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from msa_ops import _C
from msa_ops.registry.torch_library import _OBSTACLES

STATES = {
    "asked by Python": _C.TorchState(_OBSTACLES, torch.is_grad_enabled),
    "without Python": _C.TorchState.without_python(),
}


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest) -> _C.TorchState:
    found = STATES[request.param]
    assert found is not None, "this torch lacks a function that the versions tried have"
    return found


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Function(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def profiling() -> Iterator[None]:
    with torch.autograd.profiler.profile():
        yield


@pytest.mark.parametrize("mode", [Dispatch, Function, profiling])
def test_modes_and_the_profiler_are_seen(
    state: _C.TorchState, mode: Callable[[], contextlib.AbstractContextManager[object]]
) -> None:
    assert state.is_plain()
    with mode():
        assert not state.is_plain()
        elsewhere: list[bool] = []
        thread = threading.Thread(target=lambda: elsewhere.append(state.is_plain()))
        thread.start()
        thread.join()
        assert elsewhere == [True] or mode is profiling
    assert state.is_plain()


def test_transforms_are_seen(state: _C.TorchState) -> None:
    seen: list[bool] = []
    torch.func.vmap(lambda x: (seen.append(state.is_plain()), x)[1])(torch.zeros(3))
    torch.func.grad(lambda x: (seen.append(state.is_plain()), x.sum())[1])(torch.zeros(3))
    assert seen == [False, False] and state.is_plain()


@pytest.mark.filterwarnings("ignore")
def test_tracing_is_seen(state: _C.TorchState) -> None:
    seen: list[bool] = []
    torch.jit.trace(lambda x: (seen.append(state.is_plain()), x + 1)[1], (torch.zeros(3),), check_trace=False)
    assert seen == [False] and state.is_plain()


def test_gradients_are_seen(state: _C.TorchState) -> None:
    with torch.no_grad():
        assert not state.grad_enabled()
        with torch.enable_grad():
            assert state.grad_enabled()
    with torch.inference_mode():
        assert not state.grad_enabled()
    assert state.grad_enabled()
