from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from msa_ops.bench import result
from msa_ops.bench.check import Comparison
from msa_ops.bench.decode import FormatError
from tests.bench.synthetic import normal, record, report


def plain(*samples: float) -> Any:
    return json.loads(result.to_json(report(record(samples or normal(0)))))


def test_round_trip(tmp_path: Path) -> None:
    checks = [Comparison("out", 8, 0, 1e-3, 1e-4, True)]
    before = report(
        record(normal(0), tags=["a"], dims={"seq_lens": [1, 2], "dtype": "x", "residual": True}, checks=checks),
        record((), status="incorrect", reason="out: 3 of 8", backend="other"),
        git_sha=None,
    )
    path = str(tmp_path / "r.json")
    result.write(before, path)
    assert result.read(path) == before
    assert before.failed and not report(record(normal(0))).failed


def test_samples_survive_exactly() -> None:
    samples = normal("exact", 50, median=1 / 3)
    assert result.from_plain(plain(*samples), "r.json").records[0].samples == samples


def change(data: Any, path: list[Any], value: Any) -> Any:
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["schema"], "other", "r.json: not a result of `msa-ops bench`"),
        (["schema"], None, "r.json: not a result"),
        (["schema_version"], 2, "schema_version 2; accepted: 1"),
        (["records", 0, "smaples"], [], r"records\[0\]: unknown key 'smaples'; did you mean 'samples'"),
        (["records", 0, "samples"], "fast", r"records\[0\].samples: 'fast'; accepted: a list of numbers"),
        (["records", 0, "samples", 3], "1", r"records\[0\].samples\[3\]: '1'; accepted: a number"),
        (["records", 0, "samples", 3], math.nan, r"records\[0\].samples: nan; accepted: seconds from 1e-12 to 1e\+09"),
        (["records", 0, "samples", 3], math.inf, r"records\[0\].samples: inf; accepted: seconds"),
        (["records", 0, "samples", 3], 0, r"records\[0\].samples: 0.0; accepted: seconds"),
        (["records", 0, "samples", 3], -1e-4, r"records\[0\].samples: -0.0001; accepted: seconds"),
        (["records", 0, "samples", 3], 5e-324, r"records\[0\].samples: 5e-324; accepted: seconds"),
        (["records", 0, "samples", 3], 10**400, r"records\[0\].samples\[3\]: 1000.*; accepted: a number"),
        (["records", 0, "weight"], math.nan, r"records\[0\].weight: nan; accepted: numbers from 0"),
        (["records", 0, "weight"], 1e308, r"records\[0\].weight: 1e\+308; accepted: numbers from 0"),
        (["records", 0, "weight"], -1, r"records\[0\].weight: -1"),
        (["records", 0, "case"], "a\nb", r"records\[0\]: .*names that do not print"),
        (["records", 0, "status"], "fine", r"records\[0\].status: 'fine'; accepted: ok, incorrect, refused, error"),
        (["records", 0, "status"], "incorrect", r"records\[0\].samples: a result that is incorrect has no time"),
        (["records", 0, "case"], None, r"records\[0\]: key 'case' is missing"),
        (["environment", "threads"], None, "environment: key 'threads' is missing"),
        (["roof", "bandwidth", "read"], "fast", "roof.bandwidth.read: 'fast'; accepted: a number"),
    ],
)
def test_strict_reading(path: list[Any], value: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message) as error:
        result.from_plain(change(plain(), path, value), "r.json")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "\x00", '{"schema": "msa-ops-bench"}'])
def test_other_files(text: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=r"r\.json: "):
        result.read(str(path))


def test_numbers_that_json_lacks_are_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        result.to_json(report(record([math.nan])))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("", "not JSON"),
        ('{"schema": "msa-ops-bench", "schema_version": 1, "schema_version": 2}', "'schema_version' comes twice"),
    ],
    ids=["deep", "empty", "repeated"],
)
def test_files_that_are_no_json(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=rf"r\.json: .*{message}"):
        result.read(str(path))


def test_only_results_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    result.check_path(str(path))
    result.write(report(record(normal(1))), str(path))
    result.check_path(str(path))
    result.check_path("/dev/null")
    (tmp_path / "empty").touch()
    result.check_path(str(tmp_path / "empty"))
    (tmp_path / "notes.txt").write_text("precious")
    for place, message in (
        (tmp_path / "notes.txt", "is not a result"),
        (tmp_path, "a folder"),
        (tmp_path / "nowhere" / "r.json", "its folder does not exist"),
    ):
        with pytest.raises(OSError, match=message):
            result.check_path(str(place))
