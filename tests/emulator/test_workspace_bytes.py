"""The number that the registry names is the number that a call of compiled kernels wants."""

from __future__ import annotations

import pytest
import torch

import msa_ops
from msa_ops import _C
from msa_ops.ops.indexer import SPEC

pytestmark = [
    pytest.mark.slow,  # with the others that need a build with kernels
    pytest.mark.skipif(
        not any(arch == "sm_90a" for _, arch in _C.compiled_kernels()),
        reason="this build of msa_ops holds no kernels for sm_90a",
    ),
]


def test_one_byte_less_is_refused_with_the_number() -> None:
    args = SPEC.generate(1)
    values = {name: getattr(args, name) for name in args.__dataclass_fields__}
    with msa_ops.emulate("sm_90a") as chip:
        needed = msa_ops.workspace_bytes("indexer", chip.platform, call=values)
        assert needed > 0
        values["workspace"] = torch.empty(needed - 1, dtype=torch.uint8)
        with pytest.raises(ValueError, match=f"at least {needed} bytes"):
            msa_ops.indexer(**values)
