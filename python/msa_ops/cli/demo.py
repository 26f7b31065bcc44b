"""`msa-ops demo`: a small M3.1 checkpoint is written, loaded, served and reported on."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msa_ops.model import ModelConfig

PROMPTS = (37, 300, 1100, 2700)
"""Prompt lengths. The last one spans 22 blocks, of which 16 are selected."""

BENCH_CASES = (
    ("indexer", ("batch=4", "seq_len=4096", "q_len=1")),
    ("sparse_attention", ("batch=4", "seq_len=4096", "q_len=1")),
)


def add_parser(verbs: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "demo",
        help="the reference model end to end, on a small checkpoint that it writes itself",
        description="Writes, loads and serves a small MiniMax-M3.1 checkpoint and prints what happened.",
    )
    parser.add_argument(
        "--dir", metavar="DIR", help="where to write the checkpoint, which then stays; must hold none yet"
    )
    parser.add_argument("--max-new-tokens", type=int, default=24, metavar="N", help="default %(default)s")
    parser.add_argument("--chunk", type=int, default=512, metavar="N", help="tokens a step (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-bench", action="store_true", help="leave out the benchmark table")
    return parser


def run(args: argparse.Namespace) -> int:
    if args.max_new_tokens < 1:
        raise ValueError(f"--max-new-tokens: {args.max_new_tokens}; accepted: 1 or more")
    if args.chunk < len(PROMPTS):
        raise ValueError(f"--chunk: {args.chunk}; accepted: {len(PROMPTS)} or more")
    if args.dir:
        return _run(args, Path(args.dir))
    with tempfile.TemporaryDirectory(prefix="msa-ops-demo-") as folder:
        return _run(args, Path(folder))


def demo_config() -> ModelConfig:
    """M3.1's geometry, narrower: all layers sparse, 3 dense MLPs before MoE, 4 KV heads, half of RoPE, topk 16."""
    from msa_ops.model import ModelConfig

    return ModelConfig(
        hidden_size=512,
        vocab_size=4096,
        num_heads=16,
        sparse_layers=(True,) * 6,
        moe_layers=(False,) * 3 + (True,) * 3,
        num_experts=16,
        expert_size=256,
        shared_size=256,
        dense_size=1024,
        max_position=1 << 20,
        eos_token_ids=(),
    )


def _run(args: argparse.Namespace, folder: Path) -> int:
    import torch

    from msa_ops.cache.page import PAGE_SIZE
    from msa_ops.cli.generate import print_report
    from msa_ops.model import Engine, Request, load
    from msa_ops.model.report import OpLog, SelectionLog, timed
    from msa_ops.model.writer import random_tensors, write

    config = demo_config()
    _, seconds = timed(
        lambda: write(folder, config, random_tensors(config, args.seed), shard_bytes=4 << 20, progress=True)
    )
    files = sorted(folder.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    print(f"checkpoint: {size / 2**20:.1f} MiB in {len(files)} shards, written in {seconds:.1f} s")
    print("  routed experts nvfp4-pack-quantized, other matrices MXFP8, embeddings, norms and lm_head BF16")
    model, seconds = timed(lambda: load(folder, max_seq_len=8192, progress=True))
    print(f"loaded in {seconds:.1f} s: {config.num_layers} layers, {config.num_experts} experts")

    generator = torch.Generator().manual_seed(args.seed)
    requests = [
        Request(torch.randint(0, config.vocab_size, (length,), generator=generator).tolist(), args.max_new_tokens)
        for length in PROMPTS
    ]
    pages = sum(-(-(length + args.max_new_tokens) // PAGE_SIZE) for length in PROMPTS)
    selection = SelectionLog(config.topk_blocks)
    engine = Engine(model, num_pages=pages, max_tokens=args.chunk, max_requests=len(PROMPTS), observe=selection)
    print(f"serving prompts of {', '.join(map(str, PROMPTS))} tokens, {args.chunk} tokens a step")
    with OpLog() as log:
        completions = engine.run(requests, progress=True)
    for completion in completions:
        first = " ".join(map(str, completion.tokens[:8]))
        print(f"  prompt of {completion.prompt_tokens}: {len(completion.tokens)} new tokens: {first} ...")
    print_report(engine, completions, selection, log)
    if not args.no_bench:
        print_bench()
    return 0


def print_bench() -> None:
    """A few decode steps of M3.1-Flash's own size, in the words of `msa-ops bench`."""
    from msa_ops.bench import runner, table, workload
    from msa_ops.cli.table import format_table

    cases = [case for op, settings in BENCH_CASES for case in workload.single(op, settings).cases]
    together = workload.Workload("demo", "two decode steps", tuple(cases))
    report = runner.run(together, runner.Options(seconds=0.5))
    print("\nbenchmark (the reference on the CPU is a definition, not a fast path)\n")
    print(format_table(table.HEADER, table.bench_rows(report)))
    print(f"\n{table.roof_line(report)}")
    print(*table.reasons(report.records), sep="\n", end="")
