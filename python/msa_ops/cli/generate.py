"""`msa-ops generate`: tokens from a checkpoint, with the reference model."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msa_ops.cli.device import check_device

if TYPE_CHECKING:
    from msa_ops.model import Completion, Engine, ModelConfig

DTYPES = ("float32", "bfloat16", "float16")
FORMATS = ("fp32", "bf16", "fp8", "nvfp4")


def add_parser(verbs: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "generate",
        help="run a checkpoint with the reference model",
        description="Serves one or more prompts together and prints the new tokens, one line a prompt.",
    )
    parser.add_argument("--model", required=True, metavar="DIR", help="folder with config.json and safetensors files")
    prompts = parser.add_argument_group("prompts (each may be repeated, and all may be mixed)")
    prompts.add_argument("--prompt-ids", action="append", default=[], metavar="ID,ID,...", help="token ids")
    prompts.add_argument(
        "--prompt-tokens", action="append", default=[], type=int, metavar="N", help="N random tokens, drawn from --seed"
    )
    prompts.add_argument(
        "--prompt", action="append", default=[], metavar="TEXT", help="text; needs tokenizer.json and `tokenizers`"
    )
    parser.add_argument("--max-new-tokens", type=int, default=16, metavar="N", help="default %(default)s")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 (default) takes the most likely token")
    parser.add_argument("--top-p", type=float, default=1.0, help="draw from the likeliest tokens of this probability")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stop-ids", metavar="ID,ID,...", help="stop after these; default: eos_token_id of the config")
    parser.add_argument("--kv-format", choices=FORMATS, default="nvfp4", help="format of K and V (default nvfp4)")
    parser.add_argument("--index-format", choices=FORMATS, help="format of index keys; default: that of K and V")
    parser.add_argument(
        "--rounding", choices=("exact", "e4m3"), default="exact", help="of dequantised NVFP4 values (default exact)"
    )
    parser.add_argument("--chunk", type=int, default=512, metavar="N", help="tokens a step (default %(default)s)")
    parser.add_argument("--pages", type=int, metavar="N", help="cache pages of 128 tokens; default: what prompts need")
    parser.add_argument("--max-seq-len", type=int, metavar="N", help="positions to prepare for; default: the longest")
    parser.add_argument("--dtype", choices=DTYPES, help="of plain weights and activations; default: the config's")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default cpu)")
    parser.add_argument(
        "--report",
        action="store_true",
        help="also print throughput, bytes, selection and backends (on stderr with --json)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    import torch

    from msa_ops.cache.page import PAGE_SIZE
    from msa_ops.model import Engine, ModelConfig, Request, Sampling, load
    from msa_ops.model.report import OpLog, SelectionLog

    check_device(args.device)
    Sampling(args.temperature, args.top_p, args.seed)
    for option, value in (("chunk", args.chunk), ("max-new-tokens", args.max_new_tokens), ("pages", args.pages)):
        if value is not None and not 1 <= value < 2**31:
            raise ValueError(f"--{option}: {value}; accepted: 1 to 2^31 - 1")
    if not Path(args.model).is_dir():
        raise ValueError(f"{args.model}: not a folder")
    config = ModelConfig.from_file(Path(args.model))
    tokenizer = _tokenizer(Path(args.model)) if args.prompt or (Path(args.model) / "tokenizer.json").is_file() else None
    prompts = _prompts(args, config, tokenizer)
    Sampling(seed=args.seed + len(prompts) - 1)
    longest = max(map(len, prompts), default=0) + args.max_new_tokens
    shown = not args.json
    model = load(
        args.model,
        dtype=getattr(torch, args.dtype) if args.dtype else None,
        device=args.device,
        max_seq_len=longest if args.max_seq_len is None else args.max_seq_len,
        progress=shown,
    )
    needed = sum(-(-(len(prompt) + args.max_new_tokens) // PAGE_SIZE) for prompt in prompts)
    selection = SelectionLog(model.config.topk_blocks)
    engine = Engine(
        model,
        num_pages=needed if args.pages is None else args.pages,
        kv_format=args.kv_format,
        index_format=args.index_format or args.kv_format,
        rounding=args.rounding,
        max_tokens=args.chunk,
        max_requests=min(64, args.chunk),
        observe=selection if args.report else None,
    )
    stop = _ids("--stop-ids", args.stop_ids) if args.stop_ids else model.config.eos_token_ids
    requests = [
        Request(
            prompt,
            args.max_new_tokens,
            Sampling(args.temperature, args.top_p, args.seed + number),
            tuple(stop),
        )
        for number, prompt in enumerate(prompts)
    ]
    with OpLog() as log:
        completions = engine.run(requests, progress=shown)
    _print(args, completions, tokenizer)
    if args.report:
        print_report(engine, completions, selection, log, sys.stderr if args.json else None)
    return 0


def print_report(engine: Engine, completions: list[Completion], selection: Any, log: Any, file: Any = None) -> None:
    """Throughput, cache bytes, blocks selected, and the backends with the reasons against the others."""
    from msa_ops.cli.table import format_table
    from msa_ops.model import report

    out = file or sys.stdout
    for title, lines in (
        ("throughput", report.throughput_lines(engine.stats, completions)),
        (f"cache, {engine.cache.kv_format} with {engine.cache.index_format} index", report.cache_lines(engine.cache)),
        ("selection", selection.lines()),
    ):
        print(f"\n{title}", *(f"  {line}" for line in lines), sep="\n", file=out)
    print("\nbackends\n", file=out)
    print(format_table(report.BACKEND_HEADER, report.backend_rows(log.calls())), file=out)
    print("\nwhy other backends did not run", file=out)
    print(*(f"  {line}" for line in report.backend_reasons(log.calls())), sep="\n", file=out)


def _print(args: argparse.Namespace, completions: list[Completion], tokenizer: Any) -> None:
    if args.json:
        records = [
            {
                "request": completion.request,
                "prompt_tokens": completion.prompt_tokens,
                "tokens": completion.tokens,
                "reason": completion.reason,
            }
            | ({"text": tokenizer.decode(completion.tokens)} if tokenizer else {})
            for completion in completions
        ]
        print(json.dumps(records, indent=2))
        return
    for completion in completions:
        ids = " ".join(map(str, completion.tokens))
        text = f": {tokenizer.decode(completion.tokens)!r}" if tokenizer else ""
        print(f"{completion.request} ({completion.prompt_tokens} prompt tokens, {completion.reason}): {ids}{text}")


def _prompts(args: argparse.Namespace, config: ModelConfig | None, tokenizer: Any) -> list[list[int]]:
    import torch

    if not (args.prompt_ids or args.prompt_tokens or args.prompt):
        raise ValueError("prompt: none; accepted: --prompt-ids, --prompt-tokens or --prompt")
    prompts = [_ids("--prompt-ids", text) for text in args.prompt_ids]
    longest = config.max_position if config else 1
    generator = torch.Generator().manual_seed(args.seed)
    vocabulary = config.vocab_size if config else 1
    for count in args.prompt_tokens:
        if not 1 <= count <= longest:
            raise ValueError(f"--prompt-tokens: {count}; accepted: 1 to max_position_embeddings, {longest}")
        prompts.append(torch.randint(0, vocabulary, (count,), generator=generator).tolist())
    prompts += [tokenizer.encode(text).ids for text in args.prompt]
    if not all(prompts):
        raise ValueError("prompt: one without tokens; accepted: at least one token in each")
    return prompts


def _ids(option: str, text: str) -> list[int]:
    parts = text.replace(",", " ").split()
    if not all(re.fullmatch(r"-?[0-9]{1,20}", part) for part in parts):
        raise ValueError(f"{option}: {text!r:.60}; accepted: token ids, separated by commas")
    return [int(part) for part in parts]


def _tokenizer(folder: Path) -> Any:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ValueError(f"--prompt: {folder} has no tokenizer.json; accepted: --prompt-ids or --prompt-tokens")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ValueError("--prompt: needs the package tokenizers: pip install tokenizers") from None
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises bare Exception
        raise ValueError(f"{file}: not a tokenizer: {error}") from error
