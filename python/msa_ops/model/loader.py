"""From a folder with config.json and safetensors files to a model.

All headers are read first, and everything that does not fit is reported at once. Then the model is allocated in the
checkpoint's own formats and the files are read one by one, tensor by tensor, straight into place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

import msa_ops
from msa_ops.model import checkpoint, names
from msa_ops.model.checkpoint import Stored
from msa_ops.model.config import ModelConfig
from msa_ops.model.errors import CheckpointError, listing
from msa_ops.model.model import Model
from msa_ops.model.names import Part
from msa_ops.model.progress import Progress
from msa_ops.model.weights import Matrices, WeightFormat

_FLOATS = ("F32", "BF16", "F16")
_SUFFIXES = {
    WeightFormat.NONE: (".weight",),
    WeightFormat.MXFP8: (".weight", ".weight_scale"),
    WeightFormat.NVFP4: (".weight_packed", ".weight_scale", ".weight_global_scale"),
}


def load(
    path: str | Path,
    *,
    dtype: torch.dtype | None = None,
    device: str | torch.device = "cpu",
    max_seq_len: int | None = None,
    progress: bool = False,
) -> Model:
    """The model of a checkpoint folder.

    dtype: of plain weights and activations; the config's if None. max_seq_len: see Model. Quantised matrices stay as
    they are, but for two cases, which are expanded to `dtype`: matrices that one kernel reads together and that differ
    in format (for instance a bf16 index_k_proj beside MXFP8 q, k and v), and NVFP4 q, k and v projections.
    Raises ConfigError or CheckpointError, each with everything that is wrong in one line.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: not a folder; accepted: a checkpoint with config.json and safetensors files")
    config = ModelConfig.from_file(folder)
    plan = make_plan(folder, config)
    model = Model(config, plan.formats, dtype=dtype, device=device, max_seq_len=max_seq_len)
    _fill(model, plan, progress)
    return model


@dataclass
class Plan:
    """What to read: `reads[file][tensor]` puts the tensor into a model. `formats`: one for each group of matrices."""

    formats: dict[str, WeightFormat] = field(default_factory=dict)
    reads: dict[Path, dict[str, Callable[[Model, Tensor], None]]] = field(default_factory=dict)


def make_plan(folder: Path, config: ModelConfig) -> Plan:
    """Compares the files' headers with what the config asks for. Raises CheckpointError with all differences."""
    files, weight_map = checkpoint.shard_files(folder)
    present: dict[str, Stored] = {}
    missing: list[str] = []
    unexpected: list[str] = []
    misshapen: list[str] = []
    for stored in checkpoint.headers(files):
        name = names.canonical(stored.name)
        if not names.is_read(name):
            continue
        if name in present:
            unexpected.append(f"{stored.name} (in {present[name].file.name} and {stored.file.name})")
        elif weight_map.get(stored.name, stored.file.name) != stored.file.name:
            unexpected.append(f"{stored.name} (in {stored.file.name}, in the index {weight_map[stored.name]})")
        present[name] = stored
    promised = {names.canonical(name) for name in weight_map}
    left = set(present)
    plan = Plan()

    def take(name: str, shape: tuple[int, ...], dtypes: tuple[str, ...], put: Callable[[Model, Tensor], None]) -> None:
        left.discard(name)
        stored = present.get(name)
        if stored is None:
            missing.append(name + (" (in the index, not in its file)" if name in promised else ""))
            return
        one_element = math.prod(stored.shape) == math.prod(shape) == 1
        if stored.dtype not in dtypes or (stored.shape != shape and not one_element):
            misshapen.append(f"{stored}, not {' or '.join(dtypes)} {list(shape)}")
            return
        plan.reads.setdefault(stored.file, {})[stored.name] = put

    for plain in names.plain_tensors(config):
        take(plain.name, plain.shape, _FLOATS, _put_plain(plain.target))
    every = list(names.parts(config))
    found = {part.name: _stored_format(part, present) for part in every}
    for part in every:
        earlier = plan.formats.setdefault(part.group, found[part.name])
        if earlier is not found[part.name]:
            plan.formats[part.group] = WeightFormat.NONE
    for group, weight_format in plan.formats.items():
        if group.endswith(".qkv") and weight_format is WeightFormat.NVFP4:
            plan.formats[group] = WeightFormat.NONE  # qkv_insert reads plain and MXFP8 weights
    for part in every:
        stored_format = found[part.name]
        if part.columns % stored_format.group:
            accepted = f"multiples of {stored_format.group} in {stored_format.value}"
            misshapen.append(f"{part.name}: {part.columns} columns; accepted: {accepted}")
        expand = _Expand(part, stored_format) if stored_format is not plan.formats[part.group] else None
        for suffix, shape, dtypes in _tensors(part, stored_format):
            name = part.name + suffix
            put = expand.collect(name) if expand else _put_part(part, suffix, name)
            take(name, shape, dtypes, put)
    unexpected += [str(present[name].name) for name in sorted(left)]
    if missing or unexpected or misshapen:
        kinds = (("missing", missing), ("unexpected", unexpected), ("misshapen", misshapen))
        text = "; ".join(f"{len(entries)} {kind}: {listing(entries)}" for kind, entries in kinds if entries)
        raise CheckpointError(f"{folder}: tensors do not fit config.json: {text}", missing, unexpected, misshapen)
    return plan


def _stored_format(part: Part, present: Mapping[str, Stored]) -> WeightFormat:
    """The format that the tensors' names and dtypes speak of."""
    if f"{part.name}.weight_packed" in present:
        return WeightFormat.NVFP4
    weight = present.get(f"{part.name}.weight")
    if weight is None:
        return WeightFormat.MXFP8 if f"{part.name}.weight_scale" in present else WeightFormat.NONE
    return WeightFormat.MXFP8 if weight.dtype == "F8_E4M3" else WeightFormat.NONE


def _tensors(part: Part, stored: WeightFormat) -> list[tuple[str, tuple[int, ...], tuple[str, ...]]]:
    """Suffix, shape and dtypes of the tensors of a matrix."""
    rows, columns = part.rows, part.columns
    groups = (rows, columns // stored.group)
    if stored is WeightFormat.NONE:
        return [(".weight", (rows, columns), _FLOATS)]
    if stored is WeightFormat.MXFP8:
        return [(".weight", (rows, columns), ("F8_E4M3",)), (".weight_scale", groups, ("U8", "F8_E8M0"))]
    return [
        (".weight_packed", (rows, columns // 2), ("U8",)),
        (".weight_scale", groups, ("F8_E4M3",)),
        (".weight_global_scale", (1,), ("F32",)),
    ]


def _put_plain(target: str) -> Callable[[Model, Tensor], None]:
    def put(model: Model, tensor: Tensor) -> None:
        _buffer(model, target).copy_(tensor)

    return put


def _put_part(part: Part, suffix: str, name: str) -> Callable[[Model, Tensor], None]:
    def put(model: Model, tensor: Tensor) -> None:
        stack = _stack(model, part)
        rows = slice(part.row, part.row + part.rows)
        if suffix == ".weight_global_scale":
            assert stack.global_scale is not None
            place = stack.global_scale[part.index : part.index + 1]
            place = place if place.dim() == 1 else place[:, part.half]
            place.fill_(_multiplier(name, tensor))
        elif suffix == ".weight_scale":
            assert stack.scale is not None
            stack.scale[part.index, rows].view(torch.uint8).copy_(tensor.view(torch.uint8))
        else:
            stack.values[part.index, rows].copy_(tensor)

    return put


class _Expand:
    """Puts a quantised matrix into a stack of plain values, once all of its tensors have come."""

    def __init__(self, part: Part, stored: WeightFormat) -> None:
        self.part, self.stored = part, stored
        self.tensors: dict[str, Tensor] = {}

    def collect(self, name: str) -> Callable[[Model, Tensor], None]:
        def put(model: Model, tensor: Tensor) -> None:
            self.tensors[name.removeprefix(self.part.name)] = tensor.clone()
            if len(self.tensors) < len(_SUFFIXES[self.stored]):
                return
            stack = _stack(model, self.part)
            stack.values[self.part.index, self.part.row : self.part.row + self.part.rows].copy_(self._values())
            self.tensors.clear()

        return put

    def _values(self) -> Tensor:
        if self.stored is WeightFormat.NONE:
            return self.tensors[".weight"]
        scale = self.tensors[".weight_scale"].view(torch.uint8)
        if self.stored is WeightFormat.MXFP8:
            return msa_ops.dequantize_mxfp8(self.tensors[".weight"], scale)
        factor = _multiplier(f"{self.part.name}.weight_global_scale", self.tensors[".weight_global_scale"])
        codes = self.tensors[".weight_packed"]
        return msa_ops.dequantize_nvfp4(codes, scale, global_scale=torch.tensor(factor))


def _multiplier(name: str, divisor: Tensor) -> float:
    """1 / weight_global_scale. Raises CheckpointError unless both are positive and finite in fp32."""
    value = float(divisor.reshape(-1)[0])
    factor = float(1.0 / torch.tensor(value))  # rounded to fp32 once
    if not (0 < value < math.inf and 0 < factor < math.inf):
        raise CheckpointError(f"{name}: {value}; accepted: a positive finite number with a finite reciprocal")
    return factor


def _stack(model: Model, part: Part) -> Matrices:
    module = model.get_submodule(part.target)
    assert isinstance(module, Matrices)
    return module


def _buffer(model: Model, target: str) -> Tensor:
    path, _, name = target.rpartition(".")
    module: nn.Module = model.get_submodule(path)
    tensor = getattr(module, name)
    assert isinstance(tensor, Tensor)
    return tensor


def _fill(model: Model, plan: Plan, progress: bool) -> None:
    count = sum(map(len, plan.reads.values()))
    with Progress(count, "loading", "tensor", show=progress) as bar:
        for file, puts in sorted(plan.reads.items()):
            for name, tensor in checkpoint.read(file, list(puts)):
                puts[name](model, tensor)
                bar.update()
