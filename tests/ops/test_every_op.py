"""What holds for every op: schema, argument record and Python entry agree, fakes are right, out= works."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
import torch
from torch import Tensor

import msa_ops
from msa_ops.registry import STORE
from msa_ops.registry.op import OpSpec

GOLDEN = Path(__file__).parent.parent / "golden" / "schemas.txt"
OPS = STORE.ops()


def values(args: object) -> dict[str, object]:
    return {name: getattr(args, name) for name in args.__dataclass_fields__}


def clone(args: object) -> object:
    """The same record with tensors copied, strides kept."""
    copies = {}
    for name, value in values(args).items():
        if isinstance(value, Tensor):
            copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
            value = copy.copy_(value)
        copies[name] = value
    return type(args)(**copies)


def bytes_of(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)


@pytest.mark.parametrize("op", OPS)
def test_schema_is_checked_in(op: str) -> None:
    """`python -m tests.ops.schemas` rewrites the file, and refuses if a version did not grow."""
    spec = STORE.op(op)
    lines = GOLDEN.read_text().splitlines()
    assert f"v{spec.version} {spec.schema}" in lines
    assert f"v{spec.version} {spec.out_schema}" in lines


def schema_default(argument: torch._C.Argument) -> object:
    if not argument.has_default_value():
        return inspect.Parameter.empty
    if str(argument.real_type) == "ScalarType":  # torch gives the enum's number
        return {6: torch.float32, 15: torch.bfloat16}[argument.default_value]
    return argument.default_value


@pytest.mark.parametrize("op", OPS)
def test_schema_record_and_entry_agree(op: str) -> None:
    spec = STORE.op(op)
    schema = torch._C.parse_schema(f"msa_ops::{spec.schema}")
    in_schema = {a.name: schema_default(a) for a in schema.arguments if a.name != "backend"}
    record = {name: p.default for name, p in inspect.signature(spec.args).parameters.items()}
    entry = {
        name: p.default
        for name, p in inspect.signature(getattr(msa_ops, op)).parameters.items()
        if name not in ("out", "backend", "return_lse")
    }
    assert list(in_schema) == list(record), "order of the argument record"
    assert in_schema == record
    assert entry == record
    mutated = tuple(a.name for a in schema.arguments if a.is_write)
    assert mutated == spec.mutates


@pytest.mark.parametrize("op", OPS)
def test_facts_describe_the_generated_call(op: str) -> None:
    spec = STORE.op(op)
    args = spec.generate(0)
    facts = spec.facts(args)
    assert isinstance(facts, spec.facts_type)
    assert hash(facts) == hash(spec.facts(spec.generate(0)))


@pytest.mark.parametrize("op", OPS)
def test_opcheck(op: str) -> None:
    """All four checks of torch.library, dynamic shapes among them, on both overloads."""
    spec = STORE.op(op)
    packet = getattr(torch.ops.msa_ops, op)
    torch.library.opcheck(packet.default, (), values(spec.generate(1)))
    args = spec.generate(1)
    outs = {name: torch.empty_like(tensor) for name, tensor in zip(spec.outputs, spec.meta(args), strict=True)}
    checks = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if not any(out.dtype == torch.float8_e4m3fn for out in outs.values()):
        checks.append("test_schema")  # torch cannot compare float8 tensors before and after a call
    torch.library.opcheck(packet.out, (), {**values(args), **outs}, test_utils=checks)


def variants() -> list[tuple[str, str]]:
    return [(op, variant) for op in OPS for variant in STORE.op(op).variants]


@pytest.mark.parametrize(("op", "variant"), variants())
def test_variants_run_repeat_and_fill_out(op: str, variant: str) -> None:
    """Same bits on a second run, and the same bits through out=, whatever was in it."""
    spec = STORE.op(op)
    args = spec.generate(2, variant=variant)
    first_args, second_args, out_args = clone(args), clone(args), clone(args)
    packet = getattr(torch.ops.msa_ops, op)
    first = packet.default(**values(first_args))
    second = packet.default(**values(second_args))
    outs = tuple(torch.full_like(bytes_of(t), 0xC3).view(t.dtype).view(t.shape) for t in spec.meta(args))
    packet.out(**values(out_args), **dict(zip(spec.outputs, outs, strict=True)))
    first, second = ((r,) if isinstance(r, Tensor) else r for r in (first, second))
    for name, a, b, c, expected in zip(spec.outputs, first, second, outs, spec.meta(args), strict=True):
        assert a.shape == expected.shape and a.dtype == expected.dtype and a.stride() == expected.stride(), name
        assert torch.equal(bytes_of(a), bytes_of(b)), f"{name}: two runs differ"
        assert torch.equal(bytes_of(a), bytes_of(c)), f"{name}: out= differs"
    for name in values(args):
        before = getattr(args, name)
        if not isinstance(before, Tensor):
            continue
        if name in spec.mutates:
            assert torch.equal(bytes_of(getattr(first_args, name)), bytes_of(getattr(second_args, name))), name
        else:
            assert torch.equal(bytes_of(getattr(first_args, name)), bytes_of(before)), f"{name} was written"


@pytest.mark.parametrize("op", OPS)
def test_generator_is_seeded(op: str) -> None:
    spec = STORE.op(op)
    for name, value in values(spec.generate(3)).items():
        again, other = getattr(spec.generate(3), name), value
        if isinstance(value, Tensor):
            assert torch.equal(bytes_of(again), bytes_of(other)), name
    with pytest.raises(ValueError, match="variant"):
        spec.generate(0, variant="no such variant")


@pytest.mark.parametrize("op", OPS)
def test_cost_and_tolerance(op: str) -> None:
    spec = STORE.op(op)
    args = spec.generate(4)
    cost = spec.cost(args)
    assert cost.bytes_read > 0 and cost.bytes_written > 0 and cost.flops >= 0
    assert len(spec.tolerance(args)) == len(spec.outputs)


@pytest.mark.parametrize("op", OPS)
def test_wrong_out_is_refused(op: str) -> None:
    spec = STORE.op(op)
    args = spec.generate(5)
    packet = getattr(torch.ops.msa_ops, op)
    good = [torch.empty_like(t) for t in spec.meta(args)]
    for position, name in enumerate(spec.outputs):
        outs = list(good)
        outs[position] = torch.empty((*good[position].shape, 2), dtype=good[position].dtype)
        with pytest.raises(ValueError, match=name):
            packet.out(**values(args), **dict(zip(spec.outputs, outs, strict=True)))


@pytest.mark.parametrize("op", OPS)
def test_docstring_names_every_argument(op: str) -> None:
    text = inspect.getdoc(getattr(msa_ops, op)) or ""
    spec: OpSpec = STORE.op(op)
    for name in [*spec.args.__dataclass_fields__, "out", "backend", "Raises", "Returns"]:
        assert name in text, f"{op}: the docstring does not mention {name}"


def test_every_op_has_a_file_of_its_name() -> None:
    for op in OPS:
        module = importlib.import_module(f"msa_ops.ops.{op}")
        assert module.SPEC is STORE.op(op)
