from __future__ import annotations

import functools
import math

import pytest
import torch

from msa_ops.bench.argument_sets import poison
from msa_ops.bench.check import PIECE, Comparison, Reference, compare
from msa_ops.registry import STORE, Backend, Band, Tolerance
from tests.bench.fake_backends import registered

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("found", "expected", "tolerance", "outside"),
    [
        ([1.0, 2.0], [1.0, 2.0], Tolerance(), 0),
        ([1.0, 2.02], [1.0, 2.0], Tolerance(rtol=0.01), 0),
        ([1.0, 2.03], [1.0, 2.0], Tolerance(rtol=0.01), 1),
        ([0.0, 0.5], [0.0, 0.0], Tolerance(atol=0.5), 0),
        ([NAN, 1.0], [NAN, 1.0], Tolerance(rtol=0.1), 0),
        ([NAN, NAN], [NAN, 1.0], Tolerance(rtol=0.1), 1),
        ([0.0, 1.0], [NAN, 1.0], Tolerance(rtol=0.1), 1),
        ([INF, -INF], [INF, -INF], Tolerance(rtol=0.1), 0),
        ([INF, INF], [INF, -INF], Tolerance(rtol=0.1), 1),
        ([1e30, 1.0], [INF, 1.0], Tolerance(rtol=0.1), 1),
        ([INF, 1.0], [1e30, 1.0], Tolerance(rtol=0.1), 1),
        ([-0.0, 1.0], [0.0, 1.0], Tolerance(rtol=0.1), 0),
        ([-0.0, 1.0], [0.0, 1.0], Tolerance(exact=True), 1),
        ([1.0 + 1e-6, 1.0], [1.0, 1.0], Tolerance(exact=True, rtol=1.0), 1),
    ],
)
def test_elements(found: list[float], expected: list[float], tolerance: Tolerance, outside: int) -> None:
    result = compare("out", torch.tensor(found), torch.tensor(expected), tolerance)
    assert (result.outside, result.passed) == (outside, outside == 0)


def test_mismatch_is_a_share() -> None:
    expected = torch.zeros(100)
    found = expected.clone()
    found[:3] = 1
    assert compare("out", found, expected, Tolerance(mismatch=0.03)).passed
    assert not compare("out", found, expected, Tolerance(mismatch=0.02)).passed


def test_errors_and_shapes() -> None:
    result = compare("out", torch.tensor([1.0, 5.0]), torch.tensor([2.0, 4.0]), Tolerance())
    assert (result.max_abs_error, result.max_rel_error) == (1.0, 0.5)
    assert not compare("out", torch.zeros(2, 3), torch.zeros(3, 2), Tolerance()).passed
    assert not compare("out", torch.zeros(2), torch.zeros(2, dtype=torch.float64), Tolerance()).passed
    assert compare("out", torch.zeros(0), torch.zeros(0), Tolerance()) == Comparison("out", 0, 0, 0.0, 0.0, True)


def test_pieces_of_a_large_tensor_are_all_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msa_ops.bench.check.PIECE", 7)
    expected = torch.arange(20.0)
    for position in range(20):
        found = expected.clone()
        found[position] += 1
        assert compare("out", found, expected, Tolerance()).outside == 1
    assert PIECE > 7


@pytest.mark.parametrize(
    ("name", "residual", "failing"),
    [
        ("right", True, set()),
        ("expects_poison", False, set()),
        ("wrong", False, {"out"}),
        ("unwritten", False, {"out"}),
        ("spoils_input", False, {"x"}),
        ("forgets_residual", False, set()),
        ("forgets_residual", True, {"residual"}),
    ],
)
def test_backends(name: str, residual: bool, failing: set[str]) -> None:
    spec = STORE.op("rms_norm")
    fresh = functools.partial(spec.generate, 0, tokens=4, hidden=64, residual=residual)
    reference = Reference.run(spec, fresh)
    with registered(name):
        results = reference.check(spec, f"fake_{name}")
    assert {result.name for result in results if not result.passed} == failing


def test_bytes_of_a_written_cache() -> None:
    """The caches of an insertion: the reference agrees with itself; an untouched cache does not agree."""
    spec = STORE.op("qk_norm_rope_insert")
    fresh = functools.partial(spec.generate, 0)
    reference = Reference.run(spec, fresh)
    assert all(result.passed for result in reference.check(spec, "reference"))
    results = {result.name: result for result in reference._compare_arguments(spec, fresh())}
    assert not results["kv_cache"].passed, "nothing was written"


@pytest.mark.parametrize(
    ("op", "name", "dims", "failing"),
    [
        ("qk_norm_rope_insert", "insert", {}, set()),
        ("qk_norm_rope_insert", "insert_and_touch_a_neighbour", {}, {"kv_cache"}),
        ("route_experts", "route_all_but_one", {"tokens": 512, "num_experts": 64, "top_k": 4}, {"topk_ids"}),
    ],
)
def test_backends_of_other_ops(op: str, name: str, dims: dict[str, int], failing: set[str]) -> None:
    spec = STORE.op(op)
    backend = Backend(
        op=op,
        name="fake",
        target=f"tests.bench.fake_backends:{name}",
        archs=frozenset({"cpu"}),
        automatic=frozenset(),
        band=Band.PORTABLE,
    )
    reference = Reference.run(spec, functools.partial(spec.generate, 0, **dims))
    STORE.add_backend(backend)
    try:
        results = reference.check(spec, "fake")
    finally:
        STORE.remove_backend(op, "fake")
    assert {result.name for result in results if not result.passed} == failing


def test_a_share_of_mismatches_does_not_cover_what_was_not_written() -> None:
    lenient = Tolerance(rtol=1.0, mismatch=0.5)
    for expected in (torch.zeros(100), torch.zeros(100, dtype=torch.int32), torch.zeros(100, dtype=torch.int64)):
        found = expected.clone()
        poison(found[7:8])
        assert not compare("out", found, expected, lenient).passed
        assert compare("out", found, found, lenient).passed
        found[7] = 5
        assert compare("out", found, expected, lenient).passed
