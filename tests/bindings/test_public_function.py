from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.bindings.test_call_replays import (
    DEVICE,
    LONG_WAY,
    Remembered,
    aligned,
    entry,
    found_it,
    launches_of,
    replays,
)

import msa_ops
from msa_ops import _C

PUBLIC = [name for name in msa_ops.__all__ if isinstance(getattr(msa_ops, name), types.FunctionType)]
OPS = [name for name in PUBLIC if hasattr(torch.ops.msa_ops, name)]
BODY = object()
needs_vectorcall = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 does not let calls be taken over")


def remembering() -> tuple[_C.CallReplays, torch.Tensor, torch.Tensor]:
    """Knows a call with a scale of 1.0 and one with 2.0, which both raise `Remembered`."""
    calls, x, y = replays(), aligned(4, 8), aligned(4, 8)
    for scale in (1.0, 2.0):
        given = {"x": x, "y": y, "scale": scale}
        assert calls.remember((), given, None, None, False, 1, (), None, DEVICE, launches_of(x, y), found_it)
    return calls, x, y


def public(calls: _C.CallReplays) -> Callable[..., Any]:
    def function(x: Any, y: Any, *, scale: float = 1.0, out: Any = None, backend: str | None = None) -> object:
        return BODY

    assert _C.call_without_frames(function, entry(calls))
    return function


@pytest.mark.parametrize("name", OPS)
def test_public_functions_hand_their_arguments_on_as_they_are(name: str) -> None:
    """What `call_without_frames` takes for granted: the body changes nothing between its parameters and the op."""
    function = getattr(msa_ops, name)
    module = importlib.import_module(f"msa_ops.ops.{name}")
    seen: dict[str, Any] = {}
    parameters = inspect.signature(function).parameters

    def call(*args: Any, **kwargs: Any) -> tuple[str, str]:
        seen.update(zip(module.SPEC.args.__dataclass_fields__, args, strict=False), **kwargs)
        return "first", "second"

    body = types.FunctionType(function.__code__, {**vars(module), "OP": types.SimpleNamespace(call=call)})
    given = {each: (each,) for each in parameters if each != "return_lse"}
    if "return_lse" in parameters:
        assert body(**given, return_lse=False) == "first"
        given_all: dict[str, Any] = {**given, "return_lse": True}
    else:
        given_all = dict(given)
    assert body(**given_all) == ("first", "second")
    assert set(seen) == set(given) and all(seen[each] is given[each] for each in given)
    assert set(given) - {"out", "backend"} == set(module.SPEC.args.__dataclass_fields__)


@needs_vectorcall
def test_a_known_call_runs_no_line_of_the_function() -> None:
    calls, x, y = remembering()
    function = public(calls)
    for call in (
        lambda: function(x, y),
        lambda: function(x, y=y),
        lambda: function(y=y, x=x, scale=2.0),
        lambda: function(**{"scale": 1.0, "y": y, "x": x, "out": None, "backend": None}),
    ):
        for _ in range(2):
            with pytest.raises(Remembered):
                call()


@needs_vectorcall
def test_other_calls_run_the_function() -> None:
    calls, x, y = remembering()
    function = public(calls)
    for args, kwargs in (
        ((x, y), {"scale": 3.0}),
        ((x, y[:2]), {}),
        ((x, y), {"backend": "reference"}),
        ((x, y), {"out": [y]}),
        ((x, None), {}),
    ):
        assert function(*args, **kwargs) is BODY
    for args, kwargs in (((x,), {}), ((x, y, 1.0), {}), ((x, y), {"x": x}), ((x, y), {"other": 1}), ((), {})):
        with pytest.raises(TypeError, match="function"):
            function(*args, **kwargs)
    with pytest.raises(Remembered):
        function(x, y)


@needs_vectorcall
def test_the_first_of_two_results_where_the_second_is_not_asked_for() -> None:
    calls, x, y = remembering()

    def function(x: Any, y: Any, *, scale: float = 1.0, return_lse: bool = False, out: Any = None) -> object:
        return BODY

    assert _C.call_without_frames(function, entry(calls))
    for lse in (False, True):
        with pytest.raises(Remembered):
            function(x, y, return_lse=lse)
    assert function(x, y, return_lse=1) is BODY, "what is no bool is the function's own to judge"
    assert function(x, y, out=x) is BODY, "a tensor for the first alone"


@needs_vectorcall
def test_torch_compile_sees_the_function() -> None:
    calls, x, y = remembering()

    def function(x: Any, y: Any, *, scale: float = 1.0, out: Any = None, backend: str | None = None) -> Any:
        return x + scale * y

    assert _C.call_without_frames(function, entry(calls))
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    for compiled in (
        torch.compile(function, backend=backend),
        torch.compile(lambda a, b: function(a, b), backend=backend),
    ):
        assert torch.equal(compiled(x, y + 1), x + y + 1)
    assert len(graphs) == 2
    with pytest.raises(Remembered):
        function(x, y)


def test_functions_of_other_kinds_stay_as_they_are() -> None:
    calls, x, y = remembering()
    own = entry(calls)

    def of_many(*args: Any, **kwargs: Any) -> object:
        return BODY

    def of_others(x: Any, other: Any) -> object:
        return BODY

    for function, args in ((of_many, (x, y)), (of_others, (x, y)), (len, ((1,),))):
        assert not _C.call_without_frames(function, own)
        assert function(*args) in (BODY, 1)
    assert own(x, y, 3.0) is LONG_WAY
    if sys.version_info >= (3, 12):
        with pytest.raises(ValueError, match="no entry of an op"):
            _C.call_without_frames(lambda x: x, print)
