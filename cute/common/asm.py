"""Inline PTX with several results, which the language's own wrapper gives only with a detour through moves."""

from collections.abc import Sequence

from cutlass import Float32, Int32, Int64, Uint32, Uint64
from cutlass._mlir.dialects import arith, llvm
from cutlass.cutlass_dsl import T, dsl_user_op

_CONSTRAINT = {Float32: "f", Int32: "r", Uint32: "r", Int64: "l", Uint64: "l"}
_TYPE = {Float32: T.f32, Int32: T.i32, Uint32: T.i32, Int64: T.i64, Uint64: T.i64}


@dsl_user_op
def asm(text: str, results: Sequence[type], operands: Sequence = (), *, pure: bool = False, loc=None, ip=None):
    """`text` with $0, $1, ...: the results first, then the operands. `pure`: may be moved, merged or dropped.

    Returns None, one value, or a tuple.
    """
    constraints = ["=" + _CONSTRAINT[kind] for kind in results]
    constraints += [_CONSTRAINT[type(operand)] for operand in operands]
    if not pure:
        constraints.append("~{memory}")
    types = [_TYPE[kind]() for kind in results]
    if not types:
        result_type = None
    elif len(types) == 1:
        result_type = types[0]
    else:
        result_type = llvm.StructType.get_literal(types)
    found = llvm.inline_asm(
        result_type,
        [operand.ir_value(loc=loc, ip=ip) for operand in operands],
        text,
        ",".join(constraints),
        has_side_effects=not pure,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )
    if not results:
        return None
    if len(results) == 1:
        return results[0](found)
    return tuple(
        kind(llvm.extractvalue(kind_type, found, [i], loc=loc, ip=ip))
        for i, (kind, kind_type) in enumerate(zip(results, types, strict=True))
    )


@dsl_user_op
def select(condition, a, b, *, loc=None, ip=None):
    """`a` where the condition holds, else `b`; also in functions that the language does not rewrite."""
    chosen = arith.select(
        condition.ir_value(loc=loc, ip=ip), a.ir_value(loc=loc, ip=ip), b.ir_value(loc=loc, ip=ip), loc=loc, ip=ip
    )
    return type(a)(chosen)
