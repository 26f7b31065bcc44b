"""The indexer's scan on Hopper begins while the launch before still writes lengths and tables: what it sees of them
then must not show in what it chooses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import msa_ops
from msa_ops import _C
from msa_ops.emulator import kernel_text
from msa_ops.ops import indexer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not any(arch == "sm_90a" for _, arch in _C.compiled_kernels()),
        reason="this build of msa_ops holds no kernels for sm_90a",
    ),
]

SEEDS = (None, 0, 1, 2)
LENGTHS = [1300, 0, 130, 2049, 5, 900]
QUERIES = [1, 1, 1, 2, 1, 1]


def nothing(value: Tensor) -> Tensor:
    return torch.zeros_like(value)


def longer(value: Tensor) -> Tensor:
    return value + 1000


def turned(value: Tensor) -> Tensor:
    return value.flip(-1)


def wild(value: Tensor) -> Tensor:
    """Numbers that no kernel before may leave, but memory may hold."""
    numbers = torch.tensor([-1, 2**31 - 1, -(2**31), 7, 1 << 20], dtype=torch.int32)
    return numbers.repeat(value.numel())[: value.numel()].reshape(value.shape)


BEFORE: dict[str, Callable[[Tensor], Tensor]] = {
    "nothing": nothing, "longer": longer, "turned": turned, "wild": wild,
}  # fmt: skip
CASES = {
    "nvfp4_8": {"num_heads": 2},
    "nvfp4_16_few": {"num_heads": 4, "seq_lens": [900, 1300], "q_lens": [4, 3]},
    "fp8_8": {"num_heads": 2, "index_format": "fp8"},
    "bf16_8": {"num_heads": 2, "index_format": "bf16"},
}


def arguments(dims: dict[str, Any]) -> indexer.Args:
    """Sums are exact in any order, so ids are too."""
    lengths: dict[str, Any] = {"seq_lens": LENGTHS, "q_lens": QUERIES} | dims
    args = indexer.generate(5, variant="integers", topk=3, **lengths)
    return dataclasses.replace(args, max_seqlen_q=max(lengths["q_lens"]))


def run(args: indexer.Args, seed: int | None, pending: list[tuple[Tensor, Tensor]], scan: str) -> Tensor:
    values = {name: getattr(args, name) for name in args.__dataclass_fields__ if name != "workspace"}
    with msa_ops.emulate("sm_90a", seed=seed, multiprocessors=5, pending=pending) as chip:
        found = msa_ops.indexer(**values, backend="cute_sm90")
    assert chip.launches[0].kernel == f"indexer__scan_{scan}__sm_90a"
    return found


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("name", ["seq_lens", "cu_seqlens_q", "block_table"])
@pytest.mark.parametrize("case", CASES)
def test_written_by_the_launch_before(case: str, name: str, before: str) -> None:
    args = arguments(CASES[case])
    (expected,) = indexer.reference(args)
    value = getattr(args, name)
    for seed in SEEDS:
        found = run(args, seed, [(value, BEFORE[before](value))], case)
        assert torch.equal(found, expected), f"schedule {seed}"


def test_all_written_by_the_launch_before() -> None:
    args = arguments({"num_heads": 2})
    (expected,) = indexer.reference(args)
    assert args.cu_seqlens_q is not None
    for before in BEFORE.values():
        pending = [(value, before(value)) for value in (args.seq_lens, args.cu_seqlens_q, args.block_table)]
        for seed in SEEDS:
            assert torch.equal(run(args, seed, pending, "nvfp4_8"), expected), f"{before.__name__}, schedule {seed}"


def second_look_is_ignored(text: str) -> str:
    """The scan takes lengths to be as it saw them before its wait."""
    head, wait, rest = text.partition("griddepcontrol.wait;")
    start = rest.index("vote.sync.any.pred")
    end = rest.index(";", start)
    result = rest[start:end].split()[1].rstrip(",")
    return head + wait + rest[:start] + f"setp.ne.u32 {result}, 0, 0" + rest[end:]


def does_not_wait(text: str) -> str:
    return text.replace("griddepcontrol.wait;", "", 1)


@pytest.mark.parametrize(("name", "fault"), [("seq_lens", second_look_is_ignored), ("block_table", does_not_wait)])
def test_a_kernel_that_trusts_its_first_look_is_found(
    name: str, fault: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    args = arguments({"num_heads": 2})
    (expected,) = indexer.reference(args)
    as_built = kernel_text.ptx
    scan = "indexer__scan_nvfp4_8__sm_90a"
    monkeypatch.setattr(kernel_text, "ptx", lambda kernel: (fault if kernel == scan else str)(as_built(kernel)))
    value = getattr(args, name)
    assert torch.equal(run(args, None, [], "nvfp4_8"), expected)
    assert not torch.equal(run(args, None, [(value, value.roll(1, -1))], "nvfp4_8"), expected)
