from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from msa_ops import _C

READER = _C.SignatureReader(torch.Tensor, torch.nn.Parameter)


NAMES = ("v0", "v1", "v2", "v3")


def read(
    *values: Any,
    outs: tuple[Any, ...] | None = None,
    written: tuple[str, ...] = (),
    alignment: int = 128,
    grad: bool = False,
) -> bytes | None:
    record = SimpleNamespace(**dict(zip(NAMES, values, strict=False)))
    return READER.read(record, NAMES[: len(values)], written, outs, alignment, grad)


def base() -> torch.Tensor:
    return torch.zeros(4096, dtype=torch.uint8)


def aligned(offset: int, *shape: int) -> torch.Tensor:
    """uint8 tensor whose address is `offset` modulo 128."""
    memory = base()
    start = (offset - memory.data_ptr()) % 128
    return memory[start : start + torch.Size(shape).numel()].view(shape)


X = aligned(0, 4, 8)

DIFFERENT = [
    X,
    aligned(0, 8, 4),
    aligned(0, 32),
    aligned(16, 4, 8),
    aligned(0, 4, 8).view(torch.int8),
    aligned(0, 4, 8).view(torch.float8_e4m3fn),
    aligned(0, 4, 8).view(torch.float8_e8m0fnu),
    aligned(0, 4, 16)[:, :8],
    aligned(0, 1, 8).as_strided((1, 8), (77, 1)),
    aligned(0, 1, 8),
    torch.zeros(0, 8, dtype=torch.uint8),
    None,
    True,
    False,
    0,
    1,
    -1,
    2**70,
    -(2**70),
    0.0,
    -0.0,
    1.0,
    "",
    "a",
    "ab",
    torch.float32,
    torch.bfloat16,
]


def test_what_differs_reads_differently() -> None:
    found = [read(value) for value in DIFFERENT]
    assert None not in found
    assert len(set(found)) == len(DIFFERENT)


def test_values_do_not_run_into_each_other() -> None:
    assert read("ab", "c") != read("a", "bc")
    assert read(1, None) != read(None, 1)
    assert read(X, outs=(X[:0],)) != read(X, X[:0])


def test_the_same_metadata_reads_the_same() -> None:
    assert read(X, 1, "a", None) == read(aligned(0, 4, 8), 1, "a", None)
    assert read(X, alignment=16) == read(aligned(16, 4, 8), alignment=16)


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(3, device="meta"),
        torch.zeros(3).to_sparse(),
        object(),
        torch.zeros(3, dtype=torch.complex64).conj().imag,
        (1, 2),
        type("Sub", (torch.Tensor,), {})(),
    ],
)
def test_what_is_not_plain_has_no_signature(value: Any) -> None:
    assert read(value) is None


def test_gradients_matter_only_while_they_are_recorded() -> None:
    x = torch.zeros(3, requires_grad=True)
    assert read(x, grad=True) is None
    assert read(x, grad=False, alignment=1) == read(torch.zeros(3), grad=True, alignment=1)
    assert read(torch.nn.Parameter(torch.zeros(3)), grad=False) is not None


def test_shared_memory_of_results_shows() -> None:
    memory = aligned(0, 8, 128)
    apart = read(memory[:2], outs=(memory[2:4],))
    assert apart == read(aligned(0, 2, 128), outs=(aligned(0, 2, 128),))
    assert read(memory[:2], outs=(memory[1:3],)) != apart
    assert read(memory[:1], outs=(memory[2:4], memory[3:5])) != read(memory[:1], outs=(memory[2:4], memory[4:6]))
    assert read(memory[:2], outs=(memory[2:2],)) == read(memory[:2], outs=(memory[0:0],))


def test_shared_memory_of_written_arguments_shows_with_its_distance() -> None:
    memory = aligned(0, 8, 128)
    caches = [(memory[:, :32], memory[:, start : start + 32]) for start in (0, 32, 64)]
    plain = {read(*pair, alignment=1) for pair in caches}
    assert len(plain) == 1, "arguments that are only read may share memory"
    assert len({read(*pair, written=NAMES[:1], alignment=1) for pair in caches}) == 3
    assert read(*caches[1], written=NAMES[:1], alignment=1) == read(*caches[1], written=NAMES[1:2], alignment=1)


def test_a_type_without_exchange_functions_is_refused() -> None:
    with pytest.raises(ValueError, match="tensor_type"):
        _C.SignatureReader(int, int)


def test_a_missing_name_is_an_error() -> None:
    with pytest.raises(AttributeError):
        READER.read(SimpleNamespace(), ("x",), (), None, 128, False)


def test_a_negated_view_is_seen_whatever_was_read_before() -> None:
    """Python objects come to the places of others, at the same address of memory."""
    plain, numbers = torch.zeros(4), torch.zeros(4, dtype=torch.complex64)
    for _ in range(50):
        assert read(plain) is not None
        assert read(numbers.imag) is not None
        negated = numbers.conj().imag
        assert negated.is_neg() and negated.data_ptr() == numbers.imag.data_ptr()
        assert read(negated) is None
        del negated
        assert read(torch._neg_view(plain)) is None
    changed = torch.zeros(4)
    assert read(changed) is not None
    changed.data = numbers.conj().imag
    assert read(changed) is None


def test_tensors_that_were_read_are_not_kept() -> None:
    tensor = torch.zeros(4)
    seen = weakref.ref(tensor)
    assert read(tensor) is not None
    del tensor
    assert seen() is None
