"""Which backend an op would run on, and all reasons why the others would not, on any chip."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from msa_ops.registry import overrides, plugins, virtual
from msa_ops.registry import platform as platforms
from msa_ops.registry.op import OpSpec
from msa_ops.registry.overrides import Override
from msa_ops.registry.platform import Platform
from msa_ops.registry.refusal import Refusal

if TYPE_CHECKING:
    from msa_ops.registry.selection import Selector


@dataclass(frozen=True)
class Verdict:
    """One backend's standing for one call."""

    backend: str
    provider: str
    band: str
    chosen: bool
    wanted: bool
    refusals: tuple[Refusal, ...]

    @property
    def state(self) -> str:
        if self.chosen:
            return "chosen"
        return "refused" if self.refusals else "outranked" if self.wanted else "not asked for"


@dataclass(frozen=True)
class Explanation:
    """The choice for one call. `choice` is None when no backend can serve it."""

    op: str
    platform: str
    facts: Mapping[str, Any]
    override: str | None
    choice: str | None
    verdicts: tuple[Verdict, ...]
    failures: tuple[tuple[str, Refusal], ...]

    def reasons(self) -> str:
        """One line a reason, every backend included."""
        lines = []
        for verdict in self.verdicts:
            lines.append(f"  {verdict.backend} ({verdict.provider}, {verdict.band}): {verdict.state}")
            lines += [f"    {refusal}" for refusal in verdict.refusals]
        for provider, refusal in self.failures:
            lines.append(f"  plugin {provider}: not loaded\n    {refusal}")
        return "\n".join(lines)

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        wish = f", asked for: {self.override}" if self.override else ""
        return f"{self.op} on {self.platform}: {self.choice or 'nothing'}{wish}\n  call: {facts}\n{self.reasons()}"

    def to_json(self) -> dict[str, Any]:
        """Plain data, with every reason's code, message and hint."""
        return {
            "op": self.op,
            "platform": self.platform,
            "facts": {name: _plain(value) for name, value in self.facts.items()},
            "override": self.override,
            "choice": self.choice,
            "backends": [
                {
                    "name": verdict.backend,
                    "provider": verdict.provider,
                    "band": verdict.band,
                    "state": verdict.state,
                    "refusals": [asdict(refusal) for refusal in verdict.refusals],
                }
                for verdict in self.verdicts
            ],
            "plugin_failures": {provider: asdict(refusal) for provider, refusal in self.failures},
        }


def explain(
    op: str,
    platform: str | Platform | None = None,
    facts: Mapping[str, Any] | None = None,
    *,
    call: Mapping[str, Any] | None = None,
) -> Explanation:
    """Explains the choice for `op` on a chip that need not be there.

    `platform`: a name for `parse_platform` ("sm_103a", "sm_100a, cuda=12.9", "gfx950", "cpu"), a Platform, or None
    for this machine, within `msa_ops.emulate` for its chip. `call`: the arguments of a call by name, as one would pass
    them to the op; without it the op's defaults stand (the decode step of M3.1-Flash on one GPU). `facts`: properties
    that differ from those.
    Raises UnknownOpError, UnknownBackendError for an override that names a backend which the op does not have, or
    ValueError for an unknown chip or fact, a fact that no call of the op has, or bad arguments.
    """
    from msa_ops.registry.selection import SELECTOR

    chip, values, override = question(op, platform, facts, call)
    return explain_with(SELECTOR, op, chip, values, override)


def question(
    op: str, platform: str | Platform | None, facts: Mapping[str, Any] | None, call: Mapping[str, Any] | None
) -> tuple[Platform, Any, Override]:
    """The chip, the facts and the wish that the arguments of `explain` describe. Raises what `explain` raises."""
    from msa_ops.registry.selection import SELECTOR

    plugins.load_once()
    spec = SELECTOR.store.op(op)
    if call is None:
        values = spec.facts_type()
    else:
        args = _arguments(spec, call)
        spec.check(args)
        values = spec.facts(args)
    unknown = set(facts or {}) - set(values.__dataclass_fields__)
    if unknown:
        known = ", ".join(values.__dataclass_fields__)
        raise ValueError(f"facts: {op} has no {', '.join(sorted(unknown))}; known: {known}")
    if platform is None:
        emulated = virtual.current()
        chip = platforms.this_machine() if emulated is None else emulated.platform
    else:
        chip = platforms.parse(platform) if isinstance(platform, str) else platform
    override = overrides.current(op)
    SELECTOR.require_known(op, override)
    values = replace(values, **dict(facts or {}))
    check = getattr(values, "check", None)
    if check is not None:
        check()
    return chip, values, override


def _arguments(spec: OpSpec, call: Mapping[str, Any]) -> Any:
    """The argument record; raises ValueError for names that are missing or unknown."""
    fields = dataclasses.fields(spec.args)
    missing = [field.name for field in fields if field.default is dataclasses.MISSING and field.name not in call]
    unknown = [name for name in call if name not in {field.name for field in fields}]
    if missing or unknown:
        raise ValueError(
            f"call: {spec.name} misses {', '.join(missing) or 'nothing'} and does not know "
            f"{', '.join(unknown) or 'nothing'}; accepted: {', '.join(field.name for field in fields)}"
        )
    return spec.args(**call)


def explain_with(selector: Selector, op: str, platform: Platform, facts: Any, override: Override) -> Explanation:
    """The explanation for given facts and override."""
    verdicts: list[Verdict] = []
    choice = None
    for backend in selector.store.backends(op):
        wanted = override.backend in (None, backend.name)
        refusals = selector.refusals(backend, platform, facts, automatic=override.backend is None)
        chosen = choice is None and wanted and (not refusals or (override.unsafe and override.backend is not None))
        if chosen:
            choice = backend.name
        verdicts.append(Verdict(backend.name, backend.provider, backend.band.name.lower(), chosen, wanted, refusals))
    return Explanation(
        op=op,
        platform=str(platform),
        facts={name: getattr(facts, name) for name in facts.__dataclass_fields__},
        override=f"{override.backend} (by {override.source})" if override.backend else None,
        choice=choice,
        verdicts=tuple(verdicts),
        failures=tuple(selector.store.failures()),
    )


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
