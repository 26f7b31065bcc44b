"""Entry of the `msa-ops` command. Bad input ends in one line on stderr and exit code 2."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from msa_ops._version import __version__

VERBS = ("list", "explain", "bench", "compare", "roofline", "capacity", "generate", "demo")

_MODULES = {"list": "list_ops"}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="msa-ops", description="Kernels for block-sparse attention models.")
    parser.add_argument("--version", action="version", version=f"msa-ops {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        module = importlib.import_module(f"msa_ops.cli.{_MODULES.get(verb, verb)}")
        module.add_parser(verbs).set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except (ValueError, NotImplementedError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # the reader of our output went away, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"msa-ops: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
