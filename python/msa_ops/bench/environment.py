"""What a result depends on besides the code: machine, software, source state, clocks. Reading it changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

import msa_ops


@dataclass(frozen=True)
class Environment:
    """None stands for "not known". `git_dirty`: tracked files differ from the commit. Sizes in bytes."""

    msa_ops: str
    git_sha: str | None
    git_dirty: bool | None
    python: str
    torch: str
    toolkit: str | None
    driver: str | None
    system: str
    device: str
    device_name: str
    device_uuid: str | None
    power_limit_watts: float | None
    cpu: str
    threads: int
    cache_bytes: int
    memory_bytes: int


def collect(device: torch.device) -> Environment:
    """The environment of a run on `device`."""
    sha, dirty = _git_state()
    cuda = device.type == "cuda"
    if cuda:
        properties = torch.cuda.get_device_properties(device)
        name, memory = properties.name, int(properties.total_memory)
        uuid = f"GPU-{properties.uuid}" if hasattr(properties, "uuid") else None
    else:
        name, memory, uuid = _cpu_name(), _host_memory(), None
    driver, limit = _query_gpu(device, "driver_version"), _query_gpu(device, "power.limit")
    return Environment(
        msa_ops=msa_ops.__version__,
        git_sha=sha,
        git_dirty=dirty,
        python=platform.python_version(),
        torch=torch.__version__,
        toolkit=torch.version.hip or torch.version.cuda,
        driver=driver,
        system=platform.platform(),
        device=device.type,
        device_name=name,
        device_uuid=uuid,
        power_limit_watts=_number(limit),
        cpu=_cpu_name(),
        threads=torch.get_num_threads(),
        cache_bytes=cache_bytes(device),
        memory_bytes=memory,
    )


def cache_bytes(device: torch.device) -> int:
    """Size of the last cache before memory: the L2 of a GPU, the largest cache of a CPU; 0 if not known."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM")) * factor)
    return max(sizes)


def free_bytes(device: torch.device) -> int:
    """Memory that can still be taken; 0 if not known."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def clock_mhz(device: torch.device) -> float | None:
    """Clock of the device at this moment, or None."""
    if device.type == "cuda":
        return _number(_query_gpu(device, "clocks.sm"))
    values = [float(line.split(":")[1]) for line in _cpu_info() if line.startswith("cpu MHz")]
    return round(sum(values) / len(values), 1) if values else None


def _query_gpu(device: torch.device, field: str) -> str | None:
    """One field of nvidia-smi; it only reads."""
    if device.type != "cuda" or torch.version.hip or shutil.which("nvidia-smi") is None:
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    return _output([*command, *([f"--id=GPU-{uuid}"] if uuid else [])])


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _git_state() -> tuple[str | None, bool | None]:
    """Commit and dirtiness of the source tree; unknown if the package is not a tracked part of one."""
    package = Path(msa_ops.__file__).parent
    git = ["git", "-C", str(package)]
    if _output([*git, "ls-files", "--error-unmatch", "__init__.py"]) is None:
        return None, None
    changes = _output([*git, "status", "--porcelain", "--untracked-files=no"])
    return _output([*git, "rev-parse", "HEAD"]), None if changes is None else bool(changes)


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu_info() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def _cpu_name() -> str:
    for line in _cpu_info():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _host_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
