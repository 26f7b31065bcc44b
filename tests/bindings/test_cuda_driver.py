from __future__ import annotations

import torch

from msa_ops import _C


def test_the_driver_is_asked_without_a_context() -> None:
    driver = _C.query_cuda_driver()
    if driver.devices:
        assert driver.version >= 11000 and not driver.error
        assert all(device.name and device.multiprocessors > 0 for device in driver.devices)
    else:
        assert driver.error, "no device and no reason"
    assert not torch.cuda.is_initialized()


def test_it_can_be_asked_again() -> None:
    assert [d.name for d in _C.query_cuda_driver().devices] == [d.name for d in _C.query_cuda_driver().devices]
