from __future__ import annotations

import pytest

from msa_ops.build import tensor_memory

ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], {};\n"


def test_columns_are_added() -> None:
    assert tensor_memory.columns("ret;") == 0
    assert tensor_memory.columns(ALLOC.format(256) + ALLOC.format("0x40")) == 320
    assert tensor_memory.columns("\tmov.b32 %r7, 512;\n@%p1 " + ALLOC.format("%r7")) == 512


@pytest.mark.parametrize(
    "text", [ALLOC.format("%r7"), "add.s32 %r7, %r2, 1;\n" + ALLOC.format("%r7"), "tcgen05.alloc.b32 %r1, %r2;\n"]
)
def test_columns_that_the_text_does_not_say_are_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"tcgen05\.alloc"):
        tensor_memory.columns(text)
