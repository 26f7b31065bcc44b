"""The header that CuTe-DSL writes beside an exported object: the launcher's arguments and where the stream is."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SIZES = {"char": 1, "bool": 1, "int8_t": 1, "int16_t": 2, "half": 2, "__half": 2, "int32_t": 4, "int": 4, "float": 4,
          "int64_t": 8, "double": 8}  # fmt: skip
_TYPES = {"bool": ".u8", "char": ".s8", "int": ".s32", "half": ".f16", "__half": ".f16", "float": ".f32",
          "double": ".f64", "void": ".u64"}  # fmt: skip
"""Of values, in the words of PTX; `void` stands for what a pointer points to."""
_STRUCTURE = re.compile(r"typedef struct\s*\{(?P<members>[^{}]*)\}\s*(?P<name>\w+)\s*;")
_MEMBER = re.compile(r"\s*(?P<type>[\w\s]+?)\s*(?P<pointer>\**)\s*(?P<name>\w+)\s*(?:\[(?P<count>\d+)\])?\s*$")
_WRAPPER = re.compile(r"\bcute_dsl_\w+_wrapper\((?P<parameters>[^)]*)\)\s*\{(?P<body>.*?)\n\}", re.DOTALL)
_ARGUMENTS = re.compile(r"void \*args\[\d+\]\s*=\s*\{(?P<list>[^}]*)\}")


_STREAM = "cudaStream_t"


@dataclass(frozen=True)
class LauncherArguments:
    """sizes: bytes of the arguments, in order and without streams; None for one that the header does not tell.
    types: of the same, as PTX writes them (".f32"); "" of structures and of what the header does not tell.
    streams: positions of the streams in the whole list, ascending; a launcher need not have one.
    """

    sizes: list[int | None]
    types: list[str]
    streams: list[int]


def launcher_arguments(text: str) -> LauncherArguments:
    """What the header says of the launcher. Raises ValueError if it is no such header."""
    wrapper = _WRAPPER.search(text)
    values = _ARGUMENTS.search(wrapper["body"]) if wrapper else None
    if wrapper is None or values is None:
        raise ValueError("header: it has no launcher of CuTe-DSL")
    structures = {one["name"]: _structure_size(one["members"]) for one in _STRUCTURE.finditer(text)}
    known: dict[str, int | None] = {}
    types: dict[str, str] = {}
    streams = set()
    for parameter in wrapper["parameters"].split(","):
        found = _MEMBER.match(parameter)
        if found is None:
            continue
        kind = found["type"].removeprefix("const ").removeprefix("struct ")
        # A structure is handed by its address, and so are the members of a tuple; other pointers are values.
        structure = structures.get(kind) if found["pointer"] else None
        if kind == _STREAM and not found["pointer"]:
            streams.add(found["name"])
        types[found["name"]] = "" if structure else _type(kind)
        known[found["name"]] = structure or (_SIZES.get(kind.removeprefix("u")) if kind != "void" else 8)
    names = [one.strip().lstrip("&").split("[")[0] for one in values["list"].split(",")][:-1]  # then comes the result
    return LauncherArguments(
        [known.get(name) for name in names if name not in streams],
        [types.get(name, "") for name in names if name not in streams],
        [i for i, name in enumerate(names) if name in streams],
    )


def _type(kind: str) -> str:
    if kind in _TYPES:
        return _TYPES[kind]
    found = re.fullmatch(r"(u?)int(8|16|32|64)_t", kind)
    return f".{found[1] or 's'}{found[2]}" if found else ""


def _structure_size(members: str) -> int | None:
    """By the rules of C: each member at a multiple of its size, the whole a multiple of the largest one."""
    end, alignment = 0, 1
    for member in filter(str.strip, members.split(";")):
        found = _MEMBER.match(member)
        size = None if found is None else 8 if found["pointer"] else _SIZES.get(found["type"].removeprefix("u"))
        if found is None or size is None:
            return None
        end = -(-end // size) * size + size * int(found["count"] or 1)
        alignment = max(alignment, size)
    return -(-end // alignment) * alignment
