"""Control flow whose conditions are known on the device only, as functions of functions.

What a branch or a loop carries is explicit: FlyDSL's rewriting of Python's `if` and `for` guesses it from the source.
A state is a FlyDSL scalar, or a list of states; bodies take one and return one of the same structure.
"""

from __future__ import annotations

from msa_ops.flydsl.common.intrinsics import raw

from msa_ops.build.flydsl_adapter import fx, ir, scf


def _flat(state) -> list:
    return [value for part in state for value in _flat(part)] if isinstance(state, list) else [state]


def _like(state, values):
    """The structure of `state` around the next of the MLIR values (an iterator)."""
    return [_like(part, values) for part in state] if isinstance(state, list) else type(state)(next(values))


def _yield(state, like) -> None:
    found, wanted = _flat(state), _flat(like)
    if [type(value) for value in found] != [type(value) for value in wanted]:
        raise TypeError(f"a body returns {[type(v) for v in found]}; expected {[type(v) for v in wanted]}")
    scf.YieldOp([raw(value) for value in found])


def when(condition, then) -> None:
    """then() where the condition holds."""
    branch = scf.IfOp(raw(condition))
    with ir.InsertionPoint(branch.then_block):
        then()
        scf.YieldOp([])


def either(condition, then, otherwise):
    """The state that then() returns where the condition holds, else that of otherwise()."""
    # The types are those of what then() returns, which only a trace of it tells.
    probe = scf.IfOp(raw(fx.Boolean(True)))
    with ir.InsertionPoint(probe.then_block):
        like = then()
        scf.YieldOp([])
    branch = scf.IfOp(raw(condition), [raw(value).type for value in _flat(like)], has_else=True)
    for block, body in ((branch.then_block, then), (branch.else_block, otherwise)):
        with ir.InsertionPoint(block):
            _yield(body(), like)
    probe.operation.erase()
    return _like(like, iter(branch.results))


def loop(begin, end, step, state, body):
    """state = body(i, state) for i (fx.Int32) from begin to end, not included; the last state."""
    values = [raw(value) for value in _flat(state)]
    found = scf.ForOp(*(raw(fx.Int32(bound)) for bound in (begin, end, step)), values)
    with ir.InsertionPoint(found.body):
        _yield(body(fx.Int32(found.induction_variable), _like(state, iter(found.inner_iter_args))), state)
    return _like(state, iter(found.results))


def repeat(condition, state, body):
    """state = body(state) while condition(state); the last state."""
    values = [raw(value) for value in _flat(state)]
    types = [value.type for value in values]
    found = scf.WhileOp(types, values)
    location = [ir.Location.unknown()] * len(types)
    before = found.before.blocks.append(*types, arg_locs=location)
    with ir.InsertionPoint(before):
        scf.ConditionOp(raw(condition(_like(state, iter(before.arguments)))), before.arguments)
    after = found.after.blocks.append(*types, arg_locs=location)
    with ir.InsertionPoint(after):
        _yield(body(_like(state, iter(after.arguments))), state)
    return _like(state, iter(found.results))
