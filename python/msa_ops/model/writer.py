"""Writing checkpoints as the loader reads them: safetensors shards with an index, and config.json."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

import msa_ops
from msa_ops.model import checkpoint, names
from msa_ops.model.config import ModelConfig
from msa_ops.model.errors import listing
from msa_ops.model.progress import Progress
from msa_ops.model.weights import WeightFormat

PREFIX = "language_model."
_WRITTEN = ("config.json", checkpoint.INDEX)
NVFP4_LARGEST = 448.0 * 6.0  # largest scale times largest code


def random_tensors(config: ModelConfig, seed: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Names and fp32 values of all tensors; a tensor depends on the seed and its name alone.

    Matrices keep the variance of what passes through them, up to the depth's usual damping of residual branches, so
    that a random model has activations, router scores and block scores of natural size.
    """
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed: {seed}; accepted: 0 to 2^31 - 1")
    damping = 1 / math.sqrt(2 * config.num_layers)
    for plain in names.plain_tensors(config):
        values = _normal(plain.name, plain.shape, seed)
        if plain.name.endswith("norm.weight"):
            values *= 0.1
        elif plain.name.endswith("e_score_correction_bias"):
            values *= 0.05
        elif plain.name.endswith("gate.weight"):
            values /= math.sqrt(config.hidden_size)
        yield plain.name, values
    for part in names.parts(config):
        values = _normal(part.name, (part.rows, part.columns), seed) / math.sqrt(part.columns)
        if part.target.endswith((".out", ".w2")):
            values *= damping
        yield f"{part.name}.weight", values


def write(
    path: str | Path,
    config: ModelConfig,
    tensors: Iterable[tuple[str, Tensor]],
    *,
    expert_format: str = "nvfp4",
    other_format: str = "mxfp8",
    dtype: torch.dtype = torch.bfloat16,
    shard_bytes: int = 1 << 30,
    progress: bool = False,
) -> Path:
    """Writes the tensors (canonical names, any float dtype) as a checkpoint and returns its folder.

    expert_format: of the routed experts; other_format: of all other matrices except lm_head; "none", "mxfp8" or
    "nvfp4". dtype: of what is not quantised. The largest shard has about `shard_bytes`.
    Raises FileExistsError if the folder holds a checkpoint or a part of one: nothing is overwritten.
    """
    save_file = checkpoint.package("safetensors.torch").save_file
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    present = sorted(file.name for file in folder.iterdir() if file.suffix == ".safetensors" or file.name in _WRITTEN)
    if present:
        raise FileExistsError(f"{folder}: holds {listing(present)}; accepted: a folder without a checkpoint")
    formats = {
        part.name: _format(part.name, WeightFormat(expert_format), WeightFormat(other_format))
        for part in names.parts(config)
    }
    shards: list[dict[str, Tensor]] = [{}]
    weight_map: dict[str, int] = {}
    files: list[Path] = []
    size = total = 0

    def flush() -> None:
        files.append(folder / f"part-{len(files)}.tmp")
        save_file(shards[0], files[-1], metadata={"format": "pt"})
        shards[0] = {}

    count = len(list(names.plain_tensors(config))) + len(formats)
    with Progress(count, "writing", "tensor", show=progress) as bar:
        for name, values in tensors:
            stored = _store(name, values, formats.get(name.removesuffix(".weight"), WeightFormat.NONE), dtype)
            added = sum(tensor.nbytes for tensor in stored.values())
            if size and size + added > shard_bytes:
                flush()
                size = 0
            size, total = size + added, total + added
            for stored_name, tensor in stored.items():
                shards[0][PREFIX + stored_name] = tensor.contiguous()
                weight_map[PREFIX + stored_name] = len(files)
            bar.update()
    flush()
    final = [f"model-{number + 1:05d}-of-{len(files):05d}.safetensors" for number in range(len(files))]
    for file, new in zip(files, final, strict=True):
        file.rename(folder / new)
    index = {
        "metadata": {"total_size": total},
        "weight_map": {name: final[shard] for name, shard in sorted(weight_map.items())},
    }
    _write_json(folder / checkpoint.INDEX, index)
    _write_json(folder / "config.json", _config(config, expert_format, other_format))
    return folder


def _format(name: str, expert_format: WeightFormat, other_format: WeightFormat) -> WeightFormat:
    if name == "lm_head":
        return WeightFormat.NONE
    return expert_format if ".experts." in name else other_format


def _store(name: str, values: Tensor, weight_format: WeightFormat, dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors that hold one matrix or vector, by name."""
    if weight_format is WeightFormat.NONE:
        return {name: values.float() if name.endswith("e_score_correction_bias") else values.to(dtype)}
    base = name.removesuffix(".weight")
    if weight_format is WeightFormat.MXFP8:
        quantised, scale = msa_ops.quantize_mxfp8(values.float())
        return {name: quantised, f"{base}.weight_scale": scale}
    largest = float(values.abs().max())
    divisor = torch.tensor([NVFP4_LARGEST / largest if largest else 1.0])
    codes, scale = msa_ops.quantize_nvfp4(values.float(), global_scale=divisor.reciprocal())
    return {
        f"{base}.weight_packed": codes,
        f"{base}.weight_scale": scale.view(torch.float8_e4m3fn),
        f"{base}.weight_global_scale": divisor,
    }


def _config(config: ModelConfig, expert_format: str, other_format: str) -> dict[str, object]:
    data = config.to_dict()
    if (expert_format, other_format) != ("none", "none"):
        quantization: dict[str, object] = {"quant_method": "mxfp8" if other_format == "mxfp8" else "compressed-tensors"}
        if expert_format == "nvfp4":
            quantization |= {"moe_quant_algo": "NVFP4", "moe_quant_format": "nvfp4-pack-quantized"}
        data["quantization_config"] = quantization | {"ignored_layers": ["lm_head", "embed_tokens", "gate"]}
    return data


def _normal(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) ^ (seed << 32))
    return torch.randn(shape, generator=generator)


def _write_json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
