"""A case of several ops that are timed as one: `layer_step`."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence

from msa_ops.bench import environment, layer_step, timer
from msa_ops.bench.case_run import LEAST_SAMPLES, MOST_SAMPLES, CaseRun, difference, line
from msa_ops.bench.check import Comparison
from msa_ops.bench.result import Record
from msa_ops.registry import Backend
from msa_ops.registry.errors import BackendRefusedError, NoBackendError, UnknownBackendError
from msa_ops.registry.overrides import AUTOMATIC, Override
from msa_ops.registry.selection import SELECTOR


class StepRun(CaseRun):
    """On the backends that the registry chooses, or each time on all of one name."""

    def records(self) -> Iterator[Record]:
        for wish in self.options.backends or ("",):
            yield self._measure(wish)

    def _measure(self, wish: str) -> Record:
        if reason := self.lacks_memory():
            return self._of_step((), wish, "refused", reason)
        backends: tuple[Backend, ...] = ()
        try:
            step = layer_step.generate(self.options.seed, device=str(self.device), **dict(self.case.dims))
            override = Override(wish, "--backend", False) if wish else AUTOMATIC
            backends = tuple(
                SELECTOR.choose(spec.name, self.platform, override, functools.partial(spec.facts, args))
                for spec, args in zip(layer_step.OPS, step.args, strict=True)
            )
        except (UnknownBackendError, BackendRefusedError, NoBackendError) as error:
            return self._of_step(backends, wish, "refused", line(error))
        except Exception as error:
            return self._of_step(backends, wish, "error", line(error))
        try:
            return self._timed_step(step, backends, wish)
        except Exception as error:
            return self._of_step(backends, wish, "error", line(error))

    def _timed_step(self, step: layer_step.Step, backends: tuple[Backend, ...], wish: str) -> Record:
        names = [backend.name for backend in backends]
        self.cost = step.cost()
        step.call(names)()
        checks = step.check()
        if not all(check.passed for check in checks):
            return self._of_step(backends, wish, "incorrect", difference(checks), checks)
        cold = self.plan_cold()
        steps = [step, *(step.copy() for _ in range(cold.sets - 1))]
        clock = self.timer(min(backends, key=lambda backend: backend.graph_safe))
        sample = clock.prepare([one.call(names) for one in steps], self.flush() if cold.method == "flush" else None)
        before = environment.clock_mhz(self.device)
        options = self.options
        (samples,) = timer.take([sample], options.samples, options.seconds, LEAST_SAMPLES, MOST_SAMPLES)
        after = environment.clock_mhz(self.device)
        for one in steps:
            one.poison()
        for _ in steps:
            sample()
        again = [check for one in steps for check in one.check()]
        if not all(check.passed for check in again):
            return self._of_step(backends, wish, "incorrect", f"in the timed calls: {difference(again)}", again)
        record = self._of_step(backends, wish, "ok", "", checks)
        return self.add_times(record, samples, clock, cold, (before, after))

    def _of_step(
        self,
        backends: tuple[Backend, ...],
        wish: str,
        status: str,
        reason: str,
        checks: Sequence[Comparison] = (),
    ) -> Record:
        """Named by the ops' backends, or what was wished for."""
        name = "+".join(dict.fromkeys(backend.name for backend in backends)) or wish or "none"
        sources = hashlib.sha256("".join(backend.source_hash() for backend in backends).encode()).hexdigest()[:16]
        providers = "+".join(dict.fromkeys(backend.provider for backend in backends)) or "none"
        return self.make_record(
            name, providers, sources if backends else "unknown", layer_step.VERSION, wish, status, reason, checks
        )
