"""Blackwell and CDNA4 round keys alike, so that they choose the same blocks from the same cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import msa_ops
from msa_ops import _C
from msa_ops.emulator import ARCHS
from msa_ops.ops.indexer import Args, generate
from tests.contract.oracles.block_scores import block_scores, counts
from tests.contract.oracles.block_selection import choose_all

CHIPS = ("sm_100a", "gfx950")
BUILT = {arch for name, arch in _C.compiled_kernels() + _C.code_objects() if name.startswith("indexer__scan_nvfp4")}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not {*CHIPS} <= BUILT & {*ARCHS}, reason="this build of msa_ops holds kernels of one chip at most"
    ),
]


def both(args: Args) -> tuple[torch.Tensor, torch.Tensor]:
    values = {name: getattr(args, name) for name in args.__dataclass_fields__}
    found = []
    for chip in CHIPS:
        with msa_ops.emulate(chip, multiprocessors=6):
            found.append(msa_ops.indexer(**values))
    return found[0], found[1]


@pytest.mark.parametrize("variant", ["integers", "plain", "nan_keys"])
def test_same_choice(variant: str) -> None:
    """All rows of exact scores; else all in which the last that is chosen is clear of the first that is not."""
    args = generate(
        81,
        variant=variant,
        seq_lens=[2500, 1300, 300],
        q_lens=[1, 4, 2],
        topk=6,
        q_dtype="float8_e4m3fn",
        rounding="e4m3",
    )
    blackwell, cdna4 = both(args)
    scores, error = block_scores(args)
    if variant == "integers":
        assert torch.equal(blackwell, cdna4)
        assert torch.equal(cdna4, choose_all(scores, counts(args), args.topk))
        return
    clear = 0
    for token, count in enumerate(counts(args)):
        for head in range(scores.shape[1]):
            free = np.sort(scores[token, head, : count - 1])[::-1]  # all but the local block
            k = args.topk - 1
            # Of blocks without a score the lower ids are chosen, whatever rounds.
            certain = len(free) <= k or free[k - 1] == -np.inf
            margin = np.inf if certain else free[k - 1] - free[k]
            if margin > 4 * error[token, head].max():
                clear += 1
                assert torch.equal(blackwell[token, head], cdna4[token, head]), (token, head)
    assert clear > 0.8 * scores.shape[0] * scores.shape[1]
