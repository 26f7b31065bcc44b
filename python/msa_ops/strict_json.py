"""JSON files, read strictly. Refused, though Python parses them: a key given twice, and endless nesting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_json(file: Path) -> Any:
    """The parsed file. Raises OSError, or ValueError with one line that does not name the file."""
    try:
        return json.loads(file.read_bytes().decode("utf-8"), object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    except _RepeatedKeyError:
        raise
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error


class _RepeatedKeyError(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise _RepeatedKeyError(f"{key!r:.100} comes twice, with different values")
        found[key] = value
    return found
