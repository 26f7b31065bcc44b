from __future__ import annotations

import itertools
import threading

import pytest

from msa_ops.registry import Backend, BackendRefusedError, Band, NoBackendError, UnknownBackendError
from msa_ops.registry import platform as platforms
from msa_ops.registry.overrides import AUTOMATIC, Override
from msa_ops.registry.selection import MAX_CHOICES, Selector
from msa_ops.registry.store import Store
from tests.registry import fixtures

DEFAULT = fixtures.Facts()


def choose(chip: str, facts: fixtures.Facts = DEFAULT, wish: Override = AUTOMATIC, store: Store | None = None) -> str:
    selector = Selector(store or fixtures.store())
    return selector.choose("probe", platforms.parse(chip), wish, lambda: facts).name


@pytest.mark.parametrize(
    ("chip", "facts", "expected"),
    [
        ("cpu", fixtures.Facts(), "reference"),
        ("sm_90a", fixtures.Facts(), "portable"),
        ("sm_100a", fixtures.Facts(), "qmul"),
        ("sm_100a, cuda=12.9", fixtures.Facts(), "fast"),
        ("sm_107a", fixtures.Facts(), "fast"),  # no QMUL4 on Rubin
        ("sm_103a", fixtures.Facts(kv_format="fp8"), "fast"),
        ("sm_103a", fixtures.Facts(topk=64), "portable"),
        ("sm_103a", fixtures.Facts(heads=3), "portable"),
    ],
)
def test_filter_then_band(chip: str, facts: fixtures.Facts, expected: str) -> None:
    assert choose(chip, facts) == expected


def test_order_then_name_within_a_band_whatever_the_order_of_registration() -> None:
    records = [
        fixtures.backend("b", ["cpu"]),
        fixtures.backend("a", ["cpu"]),
        fixtures.backend("z", ["cpu"], order=1),
    ]
    for permutation in itertools.permutations(records):
        store = Store()
        store.add_op(fixtures.spec())
        for record in permutation:
            store.add_backend(record)
        assert [backend.name for backend in store.backends("probe")] == ["z", "a", "b", "reference"]
        assert choose("cpu", store=store) == "z"


def test_nothing_fits_lists_every_backend_and_reason() -> None:
    with pytest.raises(NoBackendError) as error:
        choose("gfx950", fixtures.Facts(topk=8))
    text = str(error.value)
    for expected in ("portable", "fast", "qmul", "[package] needs the package no-such-package", "[argument] topk is 8"):
        assert expected in text
    assert "reference" in text and "[not_automatic]" in text


def test_asking_by_name_is_never_answered_by_another() -> None:
    assert choose("gfx950", wish=Override("reference", "the call", False)) == "reference"
    with pytest.raises(BackendRefusedError, match=r"'qmul', asked for by the call.*\n(.*\n)*.*needs qmul4"):
        choose("sm_107a", wish=Override("qmul", "the call", False))
    with pytest.raises(BackendRefusedError, match="topk is 64"):
        choose("sm_100a", fixtures.Facts(topk=64), Override("fast", "MSA_OPS_BACKEND", False))
    with pytest.raises(UnknownBackendError, match="known: qmul, amd, fast, portable, reference"):
        choose("cpu", wish=Override("nothing", "use_backend", False))


def test_unsafe_skips_checks_only_together_with_a_name() -> None:
    assert choose("sm_107a", fixtures.Facts(topk=64), Override("qmul", "use_backend", True)) == "qmul"
    assert choose("sm_107a", wish=Override(None, "automatic", True)) == "fast"


def test_choices_are_cached_by_facts_and_forgotten_when_the_registry_changes() -> None:
    store = fixtures.store()
    selector, chip = Selector(store), platforms.parse("sm_100a")
    small, large = fixtures.Facts(topk=16), fixtures.Facts(topk=64)
    for _ in range(2):
        assert selector.choose("probe", chip, AUTOMATIC, lambda: small).name == "qmul"
        assert selector.choose("probe", chip, AUTOMATIC, lambda: large).name == "portable"
    store.add_backend(fixtures.backend("better", ["sm_100a"], band=4))
    assert selector.choose("probe", chip, AUTOMATIC, lambda: small).name == "better"


def test_facts_are_not_computed_when_nobody_looks_at_them() -> None:
    def never() -> None:
        raise AssertionError("facts were computed")

    assert Selector(fixtures.store()).choose("probe", platforms.parse("cpu"), AUTOMATIC, never).name == "reference"


def test_threads_agree() -> None:
    selector, chip, found = Selector(fixtures.store()), platforms.parse("sm_100a"), []

    def work() -> None:
        for topk in range(1, 65):
            found.append((topk, selector.choose("probe", chip, AUTOMATIC, lambda k=topk: fixtures.Facts(topk=k)).name))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {(topk, "qmul" if topk <= 32 else "portable") for topk in range(1, 65)}
    assert len(found) == 8 * 64


def test_remembered_choices_are_bounded() -> None:
    """Facts of a server's calls do not repeat for ever: token counts, table widths."""
    selector, chip = Selector(fixtures.store()), platforms.parse("sm_100a")
    for heads in range(MAX_CHOICES + 10):
        selector.choose("probe", chip, AUTOMATIC, lambda n=heads: fixtures.Facts(heads=n))
    (candidates,) = selector._cache.candidates.values()
    assert 0 < len(candidates.by_facts) <= MAX_CHOICES


def test_a_change_of_the_registry_while_a_thread_chooses_is_not_lost() -> None:
    """A list of candidates made from the store as it was must not enter the cache of the store as it is."""
    chip, seen = platforms.parse("sm_100a"), []

    class Slow(Store):
        def backends(self, op: str) -> list[Backend]:
            found = super().backends(op)
            if not seen:
                seen.append(op)
                self.add_backend(fixtures.backend("better", ["sm_100a"], band=Band.PLUGIN))
                selector.choose("probe", chip, AUTOMATIC, lambda: DEFAULT)  # as another thread would
            return found

    store = fixtures.store()
    store.__class__ = Slow
    selector = Selector(store)
    selector.choose("probe", chip, AUTOMATIC, lambda: DEFAULT)
    assert selector.choose("probe", chip, AUTOMATIC, lambda: DEFAULT).name == "better"
