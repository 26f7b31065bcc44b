"""All families of cases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

if __package__:
    from tests.emulator.silicon import cases_matrix, cases_memory, cases_tensor, cases_variables
    from tests.emulator.silicon.cases import Case
else:
    import cases_matrix  # type: ignore[import-not-found,no-redef]
    import cases_memory  # type: ignore[import-not-found,no-redef]
    import cases_tensor  # type: ignore[import-not-found,no-redef]
    import cases_variables  # type: ignore[import-not-found,no-redef]
    from cases import Case  # type: ignore[import-not-found,no-redef]


def cases(forms: Iterable[tuple[str, str]]) -> Iterator[Case]:
    forms = list(forms)
    yield from cases_matrix.cases(forms)
    yield from cases_memory.cases(forms)
    yield from cases_tensor.cases()
    yield from cases_variables.cases()
