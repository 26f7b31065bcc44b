from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from msa_ops import _C

DTYPES = [
    torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn,
    torch.float8_e8m0fnu, torch.bool,
]  # fmt: skip


def maker(*tensors: torch.Tensor) -> _C.ResultMaker:
    found = _C.ResultMaker.of(tensors)
    assert found is not None, "this torch has the functions"
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 4), (3,), (2, 3, 5)])
def test_made_like_the_given(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    given = torch.empty(shape, dtype=dtype)
    if dtype is torch.float8_e8m0fnu and _C.ResultMaker.of((given,)) is None:
        pytest.skip("torch 2.11 does not tell C what this dtype is")
    (made,) = maker(given).make()
    assert type(made) is torch.Tensor and not made.requires_grad
    assert (made.shape, made.stride(), made.dtype, made.device) == (given.shape, given.stride(), dtype, given.device)
    assert given.numel() == 0 or made.data_ptr() != given.data_ptr()


def test_several_with_memory_of_their_own_and_writable() -> None:
    make = maker(torch.empty(4, 8), torch.empty(16, dtype=torch.int32), torch.empty_strided((4, 8), (1, 4))).make
    tensors = [tensor for _ in range(3) for tensor in make()]
    for number, tensor in enumerate(tensors):
        tensor.fill_(number)
    assert all(bool((tensor == number).all()) for number, tensor in enumerate(tensors))
    assert tensors[2].stride() == (1, 4)


def test_nothing_is_kept() -> None:
    make = maker(torch.empty(4)).make
    code = f"""
import resource, torch
from msa_ops import _C
make = _C.ResultMaker.of((torch.empty(1 << 20),)).make
for _ in range(500): make()[0].fill_(1)
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < {4 << 20}, "2 GB of tensors were dropped"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    (first,) = make()
    assert sys.getrefcount(first) == 2


def test_inference_mode_holds_for_what_is_made() -> None:
    make = maker(torch.empty(4)).make
    with torch.inference_mode():
        assert make()[0].is_inference()
    assert not make()[0].is_inference()


def test_no_memory_is_told() -> None:
    code = """
import resource, torch
from msa_ops import _C
maker = _C.ResultMaker.of((torch.empty(4), torch.empty(1 << 30)))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), used + (1 << 28)))
assert maker.make() is None
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tensors_of_other_devices_are_not_made() -> None:
    assert _C.ResultMaker.of((torch.empty(3), torch.empty(3, device="meta"))) is None
