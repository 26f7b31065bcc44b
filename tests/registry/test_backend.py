from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from msa_ops.registry import Between, Code, MultipleOf, Numerics, OneOf, RegistrationError, UnknownOpError
from msa_ops.registry import platform as platforms
from msa_ops.registry.errors import BackendLoadError
from tests.registry import fixtures


def test_limits_accept_and_say_what_they_accept() -> None:
    assert OneOf("a", "b").accepts("a") and not OneOf("a", "b").accepts("c")
    assert Between(1, 64).accepts(64) and not Between(1, 64).accepts(65)
    assert MultipleOf(16).accepts(32) and not MultipleOf(16).accepts(33)
    assert [str(OneOf(1, 2)), str(Between(1, 64)), str(MultipleOf(16))] == ["1, 2", "1 to 64", "multiples of 16"]


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Bad Name"},
        {"target": "no_colon"},
        {"api_version": 99},
        {"archs": frozenset()},
        {"archs": frozenset({"sm_90"})},
    ],
)
def test_malformed_records_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(RegistrationError):
        replace(fixtures.backend("fine", ["cpu"]), **change)


def test_same_record_twice_is_a_no_op_and_another_is_an_error() -> None:
    store = fixtures.store()
    record = fixtures.backend("twice", ["cpu"])
    store.add_backend(record)
    generation = store.generation
    store.add_backend(fixtures.backend("twice", ["cpu"]))
    assert store.generation == generation
    with pytest.raises(RegistrationError, match="another backend 'twice'"):
        store.add_backend(fixtures.backend("twice", ["gfx950"]))


def test_unknown_op_and_unknown_fact_are_refused() -> None:
    store = fixtures.store()
    with pytest.raises(UnknownOpError, match="known: probe"):
        store.add_backend(replace(fixtures.backend("lost", ["cpu"]), op="nothing"))
    with pytest.raises(RegistrationError, match="limits 'colour'"):
        store.add_backend(fixtures.backend("lost", ["cpu"], limits=(("colour", OneOf("red")),)))


def test_a_frozen_registry_refuses_newcomers() -> None:
    store = fixtures.store()
    store.freeze()
    store.add_backend(fixtures.backend("portable", ["sm_90a", "sm_100a", "sm_103a", "sm_107a"], band=1))
    with pytest.raises(RegistrationError, match="frozen"):
        store.add_backend(fixtures.backend("late", ["cpu"]))


def test_all_reasons_are_given_at_once() -> None:
    record = next(b for b in fixtures.store().backends("probe") if b.name == "qmul")
    chip = platforms.parse("sm_107a, cuda=12.9")
    facts = fixtures.Facts(topk=64, heads=3, kv_format="fp8")
    reasons = record.platform_refusals(chip) + record.call_refusals(chip, facts)
    assert [reason.code for reason in reasons] == [Code.FEATURE, Code.VERSION, *[Code.ARGUMENT] * 3]
    assert "needs qmul4, which sm_107a lacks" in str(reasons[0])
    assert "needs cuda >= 13.4; the platform has 12.9" in str(reasons[1])
    assert "topk is 64; accepted: 1 to 32" in str(reasons[2])
    assert all(reason.hint for reason in reasons)


def test_missing_package_is_a_reason() -> None:
    record = next(b for b in fixtures.store().backends("probe") if b.name == "amd")
    (reason,) = record.platform_refusals(platforms.parse("gfx950"))
    assert reason.code is Code.PACKAGE and "pip install" in reason.hint


def test_a_target_that_cannot_be_loaded_names_backend_and_cause() -> None:
    record = replace(fixtures.backend("broken", ["cpu"]), target="msa_ops.no_such_module:run")
    with pytest.raises(BackendLoadError, match=r"'broken'.*no_such_module"):
        record.load()


def test_source_hash_is_of_the_target_module_and_does_not_import_it() -> None:
    record = fixtures.backend("fine", ["cpu"])
    assert len(record.source_hash()) == 16
    assert replace(record, target="msa_ops.no_such:run").source_hash() == "unknown"


def test_kernels_that_the_build_lacks_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    record = fixtures.backend("compiled", ["sm_90a"], compiled=True)
    monkeypatch.setattr("msa_ops.registry.backend.built_kernels", lambda: frozenset({("probe", "sm_100a")}))
    (reason,) = record.platform_refusals(platforms.parse("sm_90a"))
    assert reason.code is Code.NOT_BUILT and "sm_90a" in reason.message
    monkeypatch.setattr("msa_ops.registry.backend.built_kernels", lambda: frozenset({("probe", "sm_90a")}))
    assert record.platform_refusals(platforms.parse("sm_90a")) == ()


def test_a_workspace_needs_an_op_that_takes_one() -> None:
    with pytest.raises(RegistrationError, match="wants a workspace; probe has no such argument"):
        fixtures.store().add_backend(fixtures.backend("hungry", ["cpu"], workspace="somewhere:size"))


def test_the_declared_rounding_is_kept() -> None:
    """A backend that has one rounding mode serves no call that wants the other, whether or not it says so twice."""

    @dataclass(frozen=True)
    class Rounded(fixtures.Facts):
        rounding: str = "exact"

    exact = fixtures.backend("exact", ["cpu"], numerics=Numerics(rounding=("exact",)))
    assert exact.needs_facts and not fixtures.backend("both", ["cpu"]).needs_facts
    assert exact.call_refusals(platforms.CPU, Rounded()) == ()
    (refusal,) = exact.call_refusals(platforms.CPU, Rounded(rounding="e4m3"))
    assert refusal.code is Code.ARGUMENT and "as exact; the call wants e4m3" in refusal.message
    assert exact.call_refusals(platforms.CPU, Rounded(rounding="e4m3", kv_format="fp8")) == ()  # nothing is rounded
    assert exact.call_refusals(platforms.CPU, fixtures.Facts()) == ()  # an op without the mode


def test_the_reference_answers_to_its_name_on_any_gpu() -> None:
    unknown = replace(platforms.parse("sm_90a"), arch="sm_89", features=frozenset())
    record = next(b for b in fixtures.store().backends("probe") if b.name == "reference")
    assert record.platform_refusals(unknown) == () and record.automatic_refusals(unknown)
