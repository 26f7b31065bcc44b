from __future__ import annotations

from pathlib import Path

import pytest

from msa_ops.bench import workload
from msa_ops.bench.decode import FormatError
from msa_ops.bench.runner import outline_cases
from msa_ops.registry import STORE

FOLDER = Path(__file__).parents[2] / "perf" / "workloads"
FILES = sorted(path.stem for path in FOLDER.glob("*.toml"))


def parse(text: str) -> workload.Workload:
    return workload.parse(f'description = "d"\n{text}', "w.toml", "w")


def test_sweep_weights_and_names() -> None:
    made = parse(
        """
        [[case]]
        op = "rms_norm"
        dims = { hidden = 64 }
        sweep = { tokens = [1, 2], dtype = ["float32", "bfloat16", "float16"] }
        weights = [1, 2, 3, 4, 5, 6.5]
        tags = ["small"]
        """
    )
    assert [dict(case.dims) for case in made.cases] == [
        {"hidden": 64, "tokens": tokens, "dtype": dtype}
        for tokens in (1, 2)
        for dtype in ("float32", "bfloat16", "float16")
    ]
    assert [case.weight for case in made.cases] == [1, 2, 3, 4, 5, 6.5]
    assert made.cases[0].name == "rms_norm[dtype=float32,hidden=64,tokens=1]"
    assert made.cases[0].tags == ("small",)
    swapped = parse('[[case]]\nop = "rms_norm"\ndims = { tokens = 1, dtype = "float32", hidden = 64 }')
    assert swapped.cases[0].name == made.cases[0].name


def test_settings_give_the_case_back() -> None:
    dims = "seq_lens = [200, 300], q_lens = [1, 2], index_format = 'fp8'"
    case = parse(f'[[case]]\nop = "indexer"\ndims = {{ {dims} }}').cases[0]
    again = workload.single("indexer", case.settings).cases[0]
    assert again.name == case.name and dict(again.dims) == dict(case.dims)
    boolean = workload.single("rms_norm", ["residual=true", "hidden=64"]).cases[0]
    assert boolean.dims == {"residual": True, "hidden": 64}
    assert workload.single("rms_norm", boolean.settings).cases[0].name == boolean.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[case]", "w.toml: not TOML: .*line 2"),
        ("", "w.toml: key 'case' is missing"),
        ("case = []", "w.toml: no cases"),
        ("cse = []\ncase = []", "w.toml: unknown key 'cse'; did you mean 'case'"),
        ('[[case]]\nop = "rmsnorm"', r"w.toml: case\[0\].op: unknown op 'rmsnorm'; did you mean 'rms_norm'"),
        ('[[case]]\nop = "rms_norm"\ndim = {}', r"case\[0\]: unknown key 'dim'; did you mean 'dims'"),
        ('[[case]]\nop = "rms_norm"\ndims = { tokns = 3 }', "dims: rms_norm has no 'tokns'; did you mean 'tokens'"),
        ('[[case]]\nop = "rms_norm"\ndims = { tokens = "3" }', r"dims.tokens: '3'; accepted: an integer"),
        ('[[case]]\nop = "rms_norm"\ndims = { tokens = -1 }', r"dims.tokens: -1; accepted: numbers from 0"),
        (
            '[[case]]\nop = "indexer"\ndims = { seq_lens = [1, -2] }',
            r"dims.seq_lens: \[1, -2\]; accepted: numbers from 0",
        ),
        ('[[case]]\nop = "rms_norm"\ndims = { tokens = true }', r"dims.tokens: True; accepted: an integer"),
        ('[[case]]\nop = "rms_norm"\ndims = { seed = 3 }', r"dims.seed: set by the command line"),
        ('[[case]]\nop = "rms_norm"\ndims = { variant = "larg" }', r"dims.variant: 'larg'; did you mean 'large'"),
        ('[[case]]\nop = "indexer"\ndims = { seq_lens = [1, "2"] }', "dims.seq_lens: .*accepted: a list of integers"),
        ('[[case]]\nop = "rms_norm"\nsweep = { tokens = 3 }', r"case\[0\].sweep.tokens: 3; accepted: a list"),
        ('[[case]]\nop = "rms_norm"\nsweep = { tokens = [] }', r"sweep.tokens: an empty list"),
        ('[[case]]\nop = "rms_norm"\nsweep = { tokns = [1] }', r"sweep: rms_norm has no 'tokns'"),
        ('[[case]]\nop = "rms_norm"\nsweep = { tokens = [1] }\ndims = { tokens = 2 }', "'tokens' is in dims too"),
        ('[[case]]\nop = "rms_norm"\nsweep = { tokens = [1, 2] }\nweights = [1]', "weights: 1 numbers; accepted: 2"),
        ('[[case]]\nop = "rms_norm"\nweight = -1', "weight: -1.0; accepted: numbers from 0"),
        ('[[case]]\nop = "rms_norm"\nweight = nan', "weight: nan"),
        ('[[case]]\nop = "rms_norm"\nweight = 1e300', "weight: 1e\\+300"),
        ("a = " + "[" * 20_000, "nested too deeply"),
        (
            f'[[case]]\nop = "rms_norm"\nsweep = {{ tokens = {list(range(200))}, hidden = {list(range(200))} }}',
            "sweep: 40000 combinations; accepted: up to 10000",
        ),
        ('[[case]]\nop = "rms_norm"\ntags = "a"', r"case\[0\].tags: 'a'; accepted: a list of strings"),
        ('[[case]]\nop = "rms_norm"\n[[case]]\nop = "rms_norm"', r"case\[1\]: rms_norm\[\] is in the file already"),
    ],
)
def test_mistakes_give_one_line_with_file_and_key(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message) as error:
        parse(text)
    assert "\n" not in str(error.value) and str(error.value).startswith("w.toml")


def test_numbers_beyond_any_machine() -> None:
    for tokens in (10**19, 10**30):
        with pytest.raises(FormatError, match=f"tokens={tokens}"):
            outline_cases(workload.single("rms_norm", [f"tokens={tokens}"]))


def test_values_that_only_the_op_can_judge() -> None:
    with pytest.raises(FormatError, match=r"'w': indexer\[index_format=nvfp5\]: index_format: 'nvfp5'; accepted: "):
        outline_cases(parse('[[case]]\nop = "indexer"\ndims = { index_format = "nvfp5" }'))
    with pytest.raises(FormatError, match="bfloat17"):
        outline_cases(parse('[[case]]\nop = "rms_norm"\ndims = { dtype = "bfloat17" }'))


def test_command_line_case() -> None:
    with pytest.raises(FormatError, match="KEY=VALUE"):
        workload.single("rms_norm", ["tokens"])
    with pytest.raises(FormatError, match=r"neither a TOML value, such as .*, nor a word"):
        workload.single("rms_norm", ["tokens=[1"])
    for text in ("tokens=4\nhidden=5", "tokens=" + "[" * 20_000):
        with pytest.raises(FormatError, match=r"neither a TOML value, such as .*, nor a word"):
            workload.single("rms_norm", [text])
    with pytest.raises(FormatError, match="'tokens' is given twice"):
        workload.single("rms_norm", ["tokens=4", "tokens=5"])
    with pytest.raises(FormatError, match="--op: unknown op"):
        workload.single("rms", [])


def test_select() -> None:
    made = parse(
        '[[case]]\nop = "rms_norm"\ntags = ["a"]\n[[case]]\nop = "indexer"\ntags = ["b"]\ndims = { batch = 2 }'
    )
    assert [case.op for case in workload.select(made, ops=["indexer"]).cases] == ["indexer"]
    assert [case.op for case in workload.select(made, tags=["a", "c"]).cases] == ["rms_norm"]
    assert [case.op for case in workload.select(made, text="batch=2").cases] == ["indexer"]
    with pytest.raises(FormatError, match="no case is left of 2"):
        workload.select(made, ops=["indexer"], tags=["a"])
    with pytest.raises(FormatError, match="unknown op 'indxer'; did you mean 'indexer'"):
        workload.select(made, ops=["indxer"])


def test_files_are_found_by_name_and_path(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('description = "d"\n[[case]]\nop = "rms_norm"\n')
    assert workload.load(str(path)).name == "own"
    assert set(FILES) <= set(workload.names())
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError, match=r"own\.toml: not TOML: 'utf-8' codec"):
        workload.load(str(path))
    with pytest.raises(FormatError, match="workload 'cpu_smok': no such file or name; did you mean 'cpu_smoke'"):
        workload.load("cpu_smok")


@pytest.mark.parametrize("name", FILES)
def test_every_file_fits_the_ops(name: str) -> None:
    """Names, types and values of every case, and its cost, are accepted by the op."""
    made = workload.load(name)
    outlines = outline_cases(made)
    assert made.description and set(outlines) == {case.name for case in made.cases}
    for outline in outlines.values():
        assert outline.cost.bytes > 0 and outline.call_bytes > 0


def test_smoke_covers_every_op() -> None:
    assert {case.op for case in workload.load("cpu_smoke").cases} == set(STORE.ops())


def test_decode_table() -> None:
    """28 weighted and 12 low-latency cases for both ops; spot checks against the published table."""
    made = workload.load("decode_m31")
    for op in ("indexer", "sparse_attention"):
        cases = [case for case in made.cases if case.op == op]
        weighted = {(c.dims["batch"], c.dims["seq_len"]): c.weight for c in cases if "weighted" in c.tags}
        low = {(c.dims["batch"], c.dims["seq_len"]) for c in cases if "low_latency" in c.tags}
        assert len(weighted) == 28 and sum(weighted.values()) == 10_000
        assert len(low) == 12 and all(c.dims["q_len"] == 8 for c in cases)
        assert weighted[8, 100_000] == 1260 and weighted[128, 200_000] == 28 and weighted[32, 10_000] == 350
        assert low == {(batch, length) for batch in (1, 2, 4) for length in (1_000, 4_000, 8_000, 32_000)}


def test_indexer_bytes_of_the_decode_table() -> None:
    """72 bytes a token of NVFP4 index keys, once for all heads and query tokens (up to ids, tables and queries)."""
    made = workload.select(workload.load("decode_m31"), ops=["indexer"], text="batch=128")
    for case, outline in zip(made.cases, outline_cases(made).values(), strict=True):
        keys = 128 * case.dims["seq_len"] * 72
        assert keys <= outline.cost.bytes_read <= keys + 128 * (8 * 4 * 256 + 4 * case.dims["seq_len"] // 128 + 600)
