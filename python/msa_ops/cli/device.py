"""The device that an option names."""

from __future__ import annotations


def check_device(name: str) -> None:
    """Raises ValueError for a name that is no device, for other kinds than CPU and CUDA, and for absent ones."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"--device: {name!r}; accepted: cpu, cuda, cuda:N") from None
    if device.type not in ("cpu", "cuda") or (device.type == "cpu" and device.index):
        raise ValueError(f"--device: {name!r}; accepted: cpu, cuda, cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"--device: {name!r}; this torch sees {torch.cuda.device_count()} CUDA devices")
