"""What kernels and chips say of clusters: a launch that does not fit is refused, as by the driver."""

# ruff: noqa: E501 (programs and messages, a case a line)
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from msa_ops.emulator import run_ptx, run_ptx_on_devices
from tests.emulator.programs import kernel

SIZE = "mov.u32 %r1, %cluster_nctarank;\nst.global.b32 [%rd0], %r1;"


def launch(directives: str = "", grid: int = 16, **options: Any) -> int:
    out = np.zeros(1, np.int32)
    run_ptx(kernel(SIZE, directives=directives), "k", grid, 32, [out], **options)
    return int(out[0])


def test_a_launch_without_a_cluster_has_that_of_the_kernel() -> None:
    assert launch(".reqnctapercluster 4\n") == 4
    assert launch(".reqnctapercluster 4\n", cluster=4) == 4
    assert launch(".explicitcluster\n.reqnctapercluster 2\n") == 2
    assert launch() == 1


@pytest.mark.parametrize("directives, options, message", [
    (".reqnctapercluster 4\n", {"cluster": 2}, "clusters of 2 blocks; it demands 4 x 1 x 1"),
    (".reqnctapercluster 4\n", {"cluster": 1}, "clusters of 1 blocks; it demands 4 x 1 x 1"),
    (".reqnctapercluster 4\n", {"grid": 6}, "grid x: 6; accepted: multiples of the cluster's 4"),
    (".explicitcluster\n", {}, r"without a cluster's size, which it demands \(.explicitcluster\)"),
    (".maxclusterrank 2\n", {"cluster": 4}, r"clusters of 4 blocks; it takes 2 at most \(.maxclusterrank\)"),
    ("", {"cluster": 16}, "cluster: 16 blocks; accepted: 1 to 8 unless the kernel is allowed clusters that are not portable"),
    ("", {"cluster": 16, "non_portable_cluster": True, "shared_memory": 200 * 1024, "multiprocessors": 4},
     "cluster: 16 blocks of 32 threads and 204800 bytes of shared memory; the chip holds 4 at once"),
    ("", {"cluster": 8, "shared_memory": 100 * 1024, "multiprocessors": 3}, "the chip holds 6 at once"),
])  # fmt: skip
def test_what_is_refused(directives: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        launch(directives, **options)


def test_what_fits() -> None:
    assert launch(".maxclusterrank 4\n", cluster=4) == 4
    assert launch(".explicitcluster\n", cluster=1) == 1
    assert launch(cluster=16, non_portable_cluster=True, shared_memory=200 * 1024) == 16
    assert launch(cluster=8, shared_memory=100 * 1024, multiprocessors=4) == 8


def test_on_devices() -> None:
    out = [np.zeros(1, np.int32) for _ in range(2)]
    text = kernel(SIZE, directives=".reqnctapercluster 2\n")
    run_ptx_on_devices(text, "k", 4, 32, [[one] for one in out])
    assert [int(one[0]) for one in out] == [2, 2]
    with pytest.raises(ValueError, match="not portable"):
        run_ptx_on_devices(kernel(SIZE), "k", 16, 32, [[one] for one in out], cluster=16)
