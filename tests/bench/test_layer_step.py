from __future__ import annotations

import dataclasses

import pytest
import torch

from msa_ops.bench import layer_step, runner, workload
from msa_ops.bench.decode import FormatError
from msa_ops.bench.result import Report
from msa_ops.bench.roof import Roof
from msa_ops.ops import indexer
from msa_ops.registry import STORE
from msa_ops.registry.op import OpSpec

CASE = workload.single("layer_step", ["seq_len=700", "num_heads=4", "topk=2"])
REFERENCES = ["reference"] * 3


@pytest.fixture(autouse=True)
def _quick_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    roof = Roof("cpu", {"read": 1e10}, {"fp32": 1e11}, True)
    monkeypatch.setattr(runner.roof, "measure", lambda device, cache: roof)


def run(**options: object) -> Report:
    return runner.run(CASE, runner.Options(samples=2, **options))  # type: ignore[arg-type]


def step() -> layer_step.Step:
    return layer_step.generate(3, seq_len=700, num_heads=4, topk=2)


def test_the_ops_hand_their_results_on() -> None:
    one = step()
    insert, choose, attend = one.args
    assert insert.kv_cache is attend.kv_cache and insert.index_cache is choose.index_cache
    assert one.outs[0] == (attend.q, choose.index_q) and one.outs[1] == (attend.block_ids,)
    assert choose.seq_lens is attend.seq_lens and choose.block_table is attend.block_table
    one.call(REFERENCES)()
    ids = attend.block_ids.clone()
    assert (ids[:, 0, -1] == 699 // 128).all(), "the block of the token that was inserted is always among them"
    assert not torch.equal(ids, indexer.reference(dataclasses.replace(choose, index_q=-choose.index_q))[0])


def test_a_copy_has_memory_of_its_own() -> None:
    one = step()
    one.call(REFERENCES)()
    other = step().copy()
    other.call(REFERENCES)()
    for mine, theirs in zip(one.outs, other.outs, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert a.data_ptr() != b.data_ptr() and torch.equal(a, b)
    assert other.args[0].kv_cache is other.args[2].kv_cache


def test_the_right_step_passes_and_any_wrong_output_does_not() -> None:
    one = step()
    one.call(REFERENCES)()
    names = [check.name for check in one.check()]
    assert all(check.passed for check in one.check()) and len(names) == 7
    (cache,) = [name for name in names if name.endswith("kv_cache")]
    for outs in one.outs:
        for out in outs:
            kept = out.clone()
            out.view(torch.uint8).bitwise_not_()
            assert not all(check.passed for check in one.check())
            out.copy_(kept)
    slot = int(one.args[0].slot_mapping[0])
    one.args[0].kv_cache[slot // 128, slot % 128 * 64 : slot % 128 * 64 + 64] ^= 0xFF
    assert cache in [check.name for check in one.check() if not check.passed]


def test_it_is_timed_as_a_case() -> None:
    (record,) = run().records
    assert (record.status, record.op, record.backend, len(record.samples)) == ("ok", "layer_step", "reference", 2)
    assert record.bytes_read + record.bytes_written == step().cost().bytes
    assert record.reproduce.startswith("msa-ops bench --op layer_step --set 'num_heads=4'")
    assert "--backend" not in record.reproduce


def test_a_wish_that_not_all_ops_can_fulfil_is_refused() -> None:
    report = run(backends=("reference", "cute_sm90"))
    assert [(record.backend, record.status) for record in report.records] == [
        ("reference", "ok"),
        ("cute_sm90", "refused"),
    ]


def test_a_wrong_op_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = STORE.op("sparse_attention")

    def reference(args: object) -> tuple[torch.Tensor, ...]:
        out, lse = spec.reference(args)
        return out + 1, lse

    wrong: tuple[OpSpec, ...] = (*layer_step.OPS[:2], dataclasses.replace(spec, reference=reference))
    monkeypatch.setattr(layer_step, "OPS", wrong)
    (record,) = run().records
    assert record.status == "incorrect" and "sparse_attention.out" in record.reason and record.samples == []


@pytest.mark.parametrize(
    ("setting", "message"),
    [("q_len=2", "layer_step has no 'q_len'"), ("batch=x", "accepted: an integer"), ("num_kv_heads=3", "num_")],
)
def test_bad_dimensions(setting: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        runner.run(workload.single("layer_step", [setting]), runner.Options(samples=1))
