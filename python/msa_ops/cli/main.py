"""Entry of the `msa-ops` command. Bad input ends in one message on stderr and exit code 2.

If the reader of the output goes away, as `head` does, the exit code is 141, that of a program ended by SIGPIPE: a
verdict that nobody read must not pass for a clean one.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Sequence

from msa_ops._version import __version__
from msa_ops.registry.errors import BackendLoadError

VERBS = ("list", "explain", "bench", "compare", "roofline", "capacity", "emulate", "generate", "demo")

_MODULES = {"list": "list_ops"}
BROKEN_PIPE = 141
_OUT_OF_MEMORY = re.compile(r"can't allocate memory|out of memory|not enough memory|[Ss]torage size calculation", re.I)


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
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")
    try:
        try:
            args = build_parser().parse_args(argv)
            code: int = args.run(args)
        finally:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard_stdout()
        return BROKEN_PIPE
    except (ValueError, NotImplementedError, OSError, BackendLoadError) as error:
        return _fail("; ".join([str(error), *getattr(error, "__notes__", ())]))
    except (MemoryError, RuntimeError) as error:
        text = str(error)
        if not (isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(text)):
            raise
        return _fail(f"out of memory: {text.splitlines()[0] if text else 'the request is too large'}")
    except KeyboardInterrupt:
        return 130


def _fail(message: str) -> int:
    print(f"msa-ops: error: {message}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # what could not be written now cannot be written at exit either
        _discard_stdout()
    return 2


def _discard_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
