from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest
import torch

import msa_ops
from msa_ops.registry import STORE, Backend, Band
from msa_ops.registry.limits import Between


def filling(args: object, outs: tuple[torch.Tensor, ...]) -> None:
    outs[0].fill_(3)


WORKSPACE_BYTES = 4096


def workspace_bytes(platform: object, facts: object) -> int:
    return WORKSPACE_BYTES


@pytest.fixture
def extra() -> object:
    record = Backend(
        op="rms_norm",
        name="filling",
        target=f"{__name__}:filling",
        archs=frozenset({"cpu"}),
        band=Band.PERFORMANT,
        limits=(("hidden", Between(1, 64)),),
    )
    STORE.add_backend(record)
    yield record
    STORE.remove_backend("rms_norm", "filling")


def test_a_better_backend_is_used_and_out_is_written_in_place(extra: Backend) -> None:
    x, weight = torch.ones(2, 64), torch.zeros(64)
    assert bool((msa_ops.rms_norm(x, weight) == 3).all())
    out = torch.zeros(2, 64)
    assert msa_ops.rms_norm(x, weight, out=out) is out
    assert bool((out == 3).all())
    assert bool((msa_ops.rms_norm(x, weight, backend="reference") < 1.1).all())
    wide = torch.ones(2, 128)
    assert bool((msa_ops.rms_norm(wide, torch.zeros(128)) < 1.1).all())  # beyond its limit: the next one


def test_under_compile_the_choice_is_made_at_run_time(extra: Backend) -> None:
    compiled = torch.compile(lambda x, w: msa_ops.rms_norm(x, w) + 1, backend="aot_eager", fullgraph=True)
    x, weight = torch.ones(2, 64), torch.zeros(64)
    assert bool((compiled(x, weight) == 4).all())
    with msa_ops.use_backend("reference"):
        assert bool((compiled(x, weight) < 2.1).all())


def test_out_must_not_share_memory_with_an_input() -> None:
    x, weight = torch.ones(2, 64), torch.zeros(64)
    with pytest.raises(ValueError, match="out: shares memory with x"):
        msa_ops.rms_norm(x, weight, out=x)
    with pytest.raises(ValueError, match=r"out: strides"):
        msa_ops.rms_norm(x, weight, out=torch.zeros(64, 2).t())


def test_devices_must_agree() -> None:
    with pytest.raises((ValueError, NotImplementedError), match=r"weight: on meta"):
        msa_ops.rms_norm(torch.ones(2, 64), torch.zeros(64, device="meta"))


def test_calls_without_tensors_or_with_surplus_arguments_are_errors() -> None:
    with pytest.raises(TypeError):
        msa_ops.rms_norm(torch.ones(2, 64))
    with pytest.raises(TypeError):
        msa_ops.rms_norm(torch.ones(2, 64), torch.zeros(64), colour="red")
    with pytest.raises(ValueError, match="out: 2 tensors; accepted: 1"):
        msa_ops.rms_norm(torch.ones(2, 64), torch.zeros(64), out=(torch.ones(1), torch.ones(1)))


def microseconds(call: Callable[[], object], calls: int = 300) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls * 1e6


def test_the_registry_adds_at_most_5_us_to_a_call_through_torch() -> None:
    """Against an op of the same schema whose kernel is the reference itself, with the same checks and no choice."""
    spec = STORE.op("rms_norm")
    library = torch.library.Library("msa_ops_bare", "FRAGMENT")
    library.define(spec.schema)

    def bare(*args: object, backend: str | None = None, **kwargs: object) -> torch.Tensor:
        call = spec.args(*args, **kwargs)
        spec.check(call)
        return spec.reference(call)[0]

    library.impl("rms_norm", bare, "CPU")
    x, weight = torch.ones(1, 8), torch.zeros(8)
    through, direct = torch.ops.msa_ops.rms_norm.default, torch.ops.msa_ops_bare.rms_norm.default
    for op in (through, direct):
        microseconds(lambda op=op: op(x, weight))
    # Short turns, so that other work on the machine falls on both sides alike; the median difference is the cost.
    turns = [
        microseconds(lambda: through(x, weight), 20) - microseconds(lambda: direct(x, weight), 20) for _ in range(400)
    ]
    extra_cost = statistics.median(turns)
    assert extra_cost <= 5.0, f"{extra_cost:.2f} us"
