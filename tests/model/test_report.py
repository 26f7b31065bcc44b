from __future__ import annotations

import pytest

from msa_ops.model import Completion, Engine, KVCache, Model, ModelConfig, Request, load
from msa_ops.model.report import (
    OpLog,
    SelectionLog,
    backend_reasons,
    backend_rows,
    cache_lines,
    throughput_lines,
)
from msa_ops.model.serve import StepStats
from msa_ops.registry import STORE, Backend, Band
from tests.model.geometry import checkpoint, tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(checkpoint(tmp_path_factory.mktemp("checkpoint"), tiny(topk_blocks=2)))


def test_ops_are_counted_with_their_backend(model: Model) -> None:
    with OpLog() as log:
        Engine(model, num_pages=2).run([Request([1, 2, 3], 3)])
    counts = {op: (backend, int(calls)) for op, backend, calls, _ in backend_rows(log.calls())}
    assert counts == {
        "rms_norm": ("reference", 3 * 5),
        "qkv_insert": ("reference", 3 * 2),
        "indexer": ("reference", 3 * 2),
        "sparse_attention": ("reference", 3 * 2),
        "dequantize_mxfp8": ("reference", 3 * 2),
        "moe": ("reference", 3 * 3),
        "route_experts": ("reference", 3),
    }
    assert all(record.seconds > 0 for record in log.calls())


def test_reasons_against_other_backends(model: Model) -> None:
    other = Backend(
        op="rms_norm", name="elsewhere", target="nowhere:f", archs=frozenset({"gfx950"}), band=Band.PERFORMANT
    )
    STORE.add_backend(other)
    try:
        with OpLog() as log:
            Engine(model, num_pages=1).run([Request([1], 1)])
        lines = backend_reasons(log.calls())
    finally:
        STORE.remove_backend("rms_norm", "elsewhere")
    (reason,) = [line for line in lines if "elsewhere" in line]
    assert reason == "  elsewhere: runs on gfx950; the platform is cpu"
    assert lines[lines.index(reason) - 1] == "rms_norm"


def test_selection_counts(model: Model) -> None:
    """A prompt of 300 tokens sees 1, 2 and 3 blocks; topk is 2."""
    log = SelectionLog(topk=2)
    Engine(model, num_pages=3, max_tokens=300, observe=log).run([Request(list(range(90)) * 3 + [1] * 30, 1)])
    pairs = 2 * 2  # layers and index heads
    assert log.queries == 300 * pairs
    assert log.visible == (128 * 1 + 128 * 2 + 44 * 3) * pairs
    assert log.selected == (128 * 1 + 172 * 2) * pairs
    assert (log.long_queries, log.long_visible, log.long_selected) == (44 * pairs, 132 * pairs, 88 * pairs)
    assert log.lines() == [
        "1.6 of 1.7 visible blocks a query, over all queries, heads and layers",
        "2.0 of 3.0 for the 15% of queries that see more than 2 blocks",
    ]
    assert SelectionLog(16).lines() == ["no layer selects blocks"]


def test_throughput() -> None:
    stats = [StepStats(100, 0, 1.0), StepStats(50, 2, 0.5), StepStats(0, 3, 0.25), StepStats(0, 3, 0.25)]
    lines = throughput_lines(stats, [Completion(0, 150, [1] * 9, "length")])
    assert lines == [
        "150 prompt and 9 new tokens in 2.0 s, 4 steps",
        "101.3 tokens/s in the 2 steps with prompt chunks",
        "12.0 tokens/s in the 2 steps of decoding alone",
    ]


def test_cache_bytes_of_m31() -> None:
    cache = KVCache(ModelConfig(), 1, device="meta")
    assert cache_lines(cache) == [
        "38,880 bytes a token (34,560 for K and V, 4,320 for index keys) over 60 layers",
        "the same cache would take 138,240 in bf16 (3.56 x), 69,120 in fp8 (1.78 x)",
        "1 pages of 128 tokens and 4,976,640 bytes, 4.7 MiB in all",
    ]


def test_results_do_not_depend_on_the_log(model: Model) -> None:
    plain = Engine(model, num_pages=2).run([Request([5, 6], 4)])
    with OpLog():
        logged = Engine(model, num_pages=2).run([Request([5, 6], 4)])
    assert plain == logged
