"""All-reduce over several devices with peer memory."""

from __future__ import annotations

import torch

from tests.emulator.gfx950.public.cases import Case, compare
from tests.emulator.gfx950.public.hip import Hip
from tests.emulator.gfx950.public.mend import Insert


def _all_reduce(kind: str, ranks: int, dtype: torch.dtype = torch.bfloat16, grid: int = 2, rounds: int = 2):
    """Each rank's buffers: signals, then a temporary area, as the kernels lay them out."""

    def run(hip: Hip) -> str:
        from kernels.comm import custom_all_reduce, custom_all_reduce_kernel

        names = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
        n = 8192 * ranks
        launchers = custom_all_reduce_kernel.make_allreduce_kernels(
            N=n, dtype_str=names[dtype], world_size=ranks, threads=512
        )
        signal = custom_all_reduce.FlyDSLAllreduce._SIGNAL_SIZE
        area = [torch.zeros(signal + 2 * n * dtype.itemsize, dtype=torch.uint8) for _ in range(ranks)]
        hip.uncached = area
        inputs = [torch.randn(n).to(dtype) for _ in range(ranks)]
        outputs = [torch.full((n,), float("nan"), dtype=dtype) for _ in range(ranks)]

        def table(addresses: list[int], first: int = 0) -> torch.Tensor:
            padded = [addresses[(first + i) % ranks] for i in range(8)]
            return torch.tensor(padded, dtype=torch.int64)

        signals, temporaries = [a.data_ptr() for a in area], [a.data_ptr() + signal for a in area]
        result = ""
        for _ in range(rounds):
            keep = []
            with hip.devices():
                for rank in range(ranks):
                    sources = table([x.data_ptr() for x in inputs], rank)
                    targets = table([x.data_ptr() for x in outputs])
                    keep += [sources, targets, table(signals), table(temporaries, rank), table(temporaries)]
                    _, _, signal_table, rotated, straight = (x.data_ptr() for x in keep[-5:])
                    common = rank, grid, signals[rank], signal_table
                    if kind == "1stage":
                        launchers["run_1stage_arr"](*common, sources.data_ptr(), outputs[rank].data_ptr())
                    elif kind == "2stage":
                        launchers["run_2stage_arr"](*common, sources.data_ptr(), rotated, outputs[rank].data_ptr())
                    else:
                        launchers["run_2stage_write_mode"](
                            *common, inputs[rank].data_ptr(), targets.data_ptr(), straight
                        )
            hip.raise_error()
            wanted = sum(x.double() for x in inputs)
            error = 2.0 ** {torch.bfloat16: -8, torch.float16: -10, torch.float32: -22}[dtype]
            for found in outputs:
                result = compare(found, wanted, absolute=4 * error, relative=error)
                found.fill_(float("nan"))
            inputs = [x.copy_(torch.randn(n)) for x in inputs]
        return result

    return run


# The first wave tells the other ranks that all waves' numbers are there.
_SCATTER_BARRIER = (Insert("kernels.comm.custom_all_reduce_kernel", "eb638250ba20", 653, "gpu.barrier()"),)

CASES = [
    *(
        Case(f"all_reduce_{kind}_{ranks}", f"{ranks} ranks, twice", _all_reduce(kind, ranks))
        for kind in ("1stage", "2stage")
        for ranks in (2, 4)
    ),
    *(
        Case(
            f"all_reduce_2stage_write_{ranks}",
            f"{ranks} ranks, twice",
            _all_reduce("2stage_write", ranks),
            alarm="wrong result",
            only_some_schedules=True,
            mend=_SCATTER_BARRIER,
        )
        for ranks in (2, 4)
    ),
    Case("all_reduce_1stage_8", "8 ranks, fp32", _all_reduce("1stage", 8, torch.float32, rounds=1)),
]
