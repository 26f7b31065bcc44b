from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from msa_ops.model import Completion, Engine, Model, ModelError, Request, Sampling, load
from msa_ops.model.serve import choose
from tests.model.geometry import checkpoint, tiny

LENGTHS = (3, 130, 64, 400, 1, 257)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = checkpoint(tmp_path_factory.mktemp("checkpoint"), tiny(topk_blocks=2), expert_format="none")
    return load(folder, dtype=torch.float32)


def engine(model: Model, **options: Any) -> Engine:
    defaults = {"num_pages": 16, "kv_format": "fp32", "index_format": "fp32", "max_tokens": 96, "max_requests": 8}
    return Engine(model, **defaults | options)


def requests(**options: Any) -> list[Request]:
    generator = torch.Generator().manual_seed(5)
    return [
        Request(torch.randint(0, 96, (length,), generator=generator).tolist(), 6 + number, **options)
        for number, length in enumerate(LENGTHS)
    ]


def tokens(completions: list[Completion]) -> list[list[int]]:
    return [completion.tokens for completion in completions]


@pytest.fixture(scope="module")
def alone(model: Model) -> list[list[int]]:
    """Each request on an engine of its own, its prompt in one step."""
    return [tokens(engine(model, max_tokens=512).run([request]))[0] for request in requests()]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_tokens": 7, "max_requests": 7},
        {"max_tokens": 128},
        {"max_tokens": 2048},
        {"max_requests": 1},
        {"max_requests": 2, "max_tokens": 2, "count": 3},
    ],
    ids=str,
)
def test_any_schedule_gives_the_tokens_of_each_request_alone(
    model: Model, alone: list[list[int]], options: dict[str, int]
) -> None:
    count = options.get("count", len(LENGTHS))
    served = engine(model, **{name: value for name, value in options.items() if name != "count"})
    completions = served.run(requests()[:count])
    assert tokens(completions) == alone[:count]
    assert [completion.request for completion in completions] == list(range(count))
    assert [completion.prompt_tokens for completion in completions] == list(LENGTHS[:count])
    assert served.allocator.available == 16
    computed = sum(step.prefill_tokens + step.decode_tokens for step in served.stats)
    assert computed == sum(LENGTHS[:count]) + sum(len(each) - 1 for each in alone[:count])
    assert max(step.prefill_tokens + step.decode_tokens for step in served.stats) <= options.get("max_tokens", 96)


@pytest.mark.parametrize(("num_pages", "max_tokens"), [(4, 512), (5, 512), (6, 512), (4, 33)])
def test_too_few_pages_preempt_and_give_the_same_tokens(
    model: Model, alone: list[list[int]], num_pages: int, max_tokens: int
) -> None:
    """Requests that cross a page while decoding compete for pages; the youngest starts again."""
    grow = [Request(request.prompt, 6 + number) for number, request in enumerate(requests())]
    grow.insert(1, Request(list(range(90)) + list(range(36)), 9))  # 126 tokens, crosses into a second page
    expected = [alone[0], tokens(engine(model).run([grow[1]]))[0], *alone[1:]]
    served = engine(model, num_pages=num_pages, max_tokens=max_tokens)
    assert tokens(served.run(grow)) == expected
    assert served.allocator.available == num_pages


def test_preemption_happens_and_sampling_survives_it(model: Model) -> None:
    """Two requests of one page each grow to two pages where only three exist."""
    prompts = [list(range(90)) + list(range(k, k + 35)) for k in (0, 1)]
    pair = [Request(prompt, 8, Sampling(1.0, 0.9, seed)) for seed, prompt in enumerate(prompts)]
    expected = [tokens(engine(model).run([request]))[0] for request in pair]
    served = engine(model, num_pages=3, max_tokens=512)
    assert tokens(served.run(pair)) == expected
    assert served.preemptions == 1


def test_decoding_goes_on_beside_a_long_prompt(model: Model) -> None:
    served = engine(model, max_tokens=32)
    served.submit(Request([1, 2, 3], 12))
    served.step()
    served.submit(Request(list(range(90)) * 3, 2))
    for _ in range(8):
        served.step()
    assert [step.decode_tokens for step in served.stats[1:]] == [1] * 8
    assert [step.prefill_tokens for step in served.stats[1:]] == [31] * 8


def test_requests_may_come_while_others_run(model: Model, alone: list[list[int]]) -> None:
    served = engine(model)
    done: list[Completion] = []
    for request in requests():
        served.submit(request)
        done += served.step()
    done += served.run()
    assert tokens(sorted(done, key=lambda completion: completion.request)) == alone


def test_draws_depend_on_the_seed_and_not_on_the_batch(model: Model) -> None:
    sampled = [Request(r.prompt, r.max_new_tokens, Sampling(1.5, 1.0, seed)) for seed, r in enumerate(requests())]
    together = tokens(engine(model).run(sampled))
    assert together == [tokens(engine(model).run([request]))[0] for request in sampled]
    other = [Request(r.prompt, r.max_new_tokens, Sampling(1.5, 1.0, 100 + s)) for s, r in enumerate(requests())]
    assert tokens(engine(model).run(other)) != together


def test_stop_tokens(model: Model, alone: list[list[int]]) -> None:
    stop = alone[3][2]
    (completion,) = engine(model).run([Request(requests()[3].prompt, 9, stop_token_ids=(stop, 95))])
    assert completion.reason == "stop"
    assert completion.tokens == alone[3][: alone[3].index(stop) + 1]
    (completion,) = engine(model).run([Request(requests()[3].prompt, 2)])
    assert (completion.reason, completion.tokens) == ("length", alone[3][:2])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request([], 4), "prompt: empty"),
        (Request([1], 0), "max_new_tokens: 0"),
        (Request([1, 96], 4), "token ids 1 to 96; accepted: 0 to 95"),
        (Request([-1], 4), "token ids -1 to -1"),
        (Request([1] * 2046, 4), "accepted: 2048 together"),
        (Request([1.5], 4), "accepted: integers"),
        (Request(["1"], 4), "accepted: integers"),
        (Request([1], 1.5), "accepted: integers"),
    ],
    ids=["empty", "none", "high", "low", "long", "fraction", "text", "fraction of a token"],
)
def test_requests_that_can_never_be_served(model: Model, request_: Request, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine(model).submit(request_)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_requests": 0}, "max_requests: 0"),
        ({"max_requests": 97}, "max_requests: 97; accepted: 1 to max_tokens, 96"),
        ({"num_pages": 0}, "num_pages: 0"),
        ({"kv_format": "int4"}, "int4"),
    ],
)
def test_bad_options(model: Model, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine(model, **options)


def test_bad_sampling() -> None:
    for values in ((-1.0, 1.0), (math.nan, 1.0), (math.inf, 1.0), (1.0, 0.0), (1.0, 1.5), (1.0, math.nan)):
        with pytest.raises(ValueError, match="accepted"):
            Sampling(*values)


def test_damaged_weights_are_an_error_and_not_text(tmp_path: Path) -> None:
    model = load(checkpoint(tmp_path))
    model.layers[0].attention_norm[3] = torch.nan
    with pytest.raises(ModelError, match="request 0: logits after token 2 are not finite"):
        engine(model).run([Request([1, 2], 4)])


def test_greedy_takes_the_lowest_of_equal_tokens() -> None:
    assert choose(torch.tensor([0.0, 2.0, 2.0, 1.0]), Sampling(), torch.Generator()) == 1


@pytest.mark.parametrize("temperature", [5e-324, 1e-320, 1e-30, 1e-6])
@pytest.mark.parametrize("top_p", [1.0, 0.5, 1e-300])
def test_the_coldest_draws_are_greedy(temperature: float, top_p: float) -> None:
    """Logits over such a temperature would overflow."""
    logits = torch.tensor([3.0, -50.0, 40.0, 39.0, -40.0])
    generator = torch.Generator().manual_seed(0)
    assert {choose(logits, Sampling(temperature, top_p), generator) for _ in range(50)} == {2}
    assert choose(-logits, Sampling(temperature, top_p), generator) == 1


def test_the_hottest_draws_are_even() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = {choose(torch.tensor([30.0, -30.0, 0.0]), Sampling(1e300), generator) for _ in range(100)}
    assert drawn == {0, 1, 2}


def test_many_short_requests_over_few_pages(model: Model) -> None:
    """Two hundred requests of one to three tokens that stop at once or after a few tokens, over three pages."""
    generator = torch.Generator().manual_seed(3)
    many = [
        Request(
            torch.randint(0, 96, (1 + number % 3,), generator=generator).tolist(),
            1 + number % 4,
            Sampling(0.8, 0.9, number),
            tuple(range(0, 96, 1 + number % 5)),
        )
        for number in range(200)
    ]
    served = engine(model, num_pages=3, max_tokens=5, max_requests=5)
    together = served.run(many)
    assert [completion.request for completion in together] == list(range(200))
    assert served.allocator.available == 3 and not served.running and not served.waiting
    wide = engine(model, num_pages=200, max_tokens=512, max_requests=200).run(many)
    assert [(c.tokens, c.reason) for c in together] == [(c.tokens, c.reason) for c in wide]
    for completion, request in zip(together, many, strict=True):
        stops = [token in request.stop_token_ids for token in completion.tokens]
        assert completion.reason == ("stop" if stops[-1] else "length") and not any(stops[:-1])
        assert completion.reason == "stop" or len(completion.tokens) == request.max_new_tokens


def test_token_ids_of_other_integer_types(model: Model) -> None:
    expected = tokens(engine(model).run([Request([1, 2, 3], 2)]))
    for prompt in (torch.tensor([1, 2, 3]), np.array([1, 2, 3], dtype=np.int32), (1, 2, 3)):
        assert tokens(engine(model).run([Request(prompt, 2)])) == expected


@pytest.mark.parametrize("sampling", [Sampling(0.7), Sampling(1.0), Sampling(2.0), Sampling(1.0, 0.8)], ids=str)
def test_draws_follow_the_distribution(sampling: Sampling) -> None:
    """Chi-square of 4,000 draws; the 99.99 % point for 5 degrees of freedom is 25.7."""
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])
    expected = (logits.double() / sampling.temperature).softmax(-1)
    if sampling.top_p < 1:
        expected[3:] = 0.0  # the first three have 0.856, the first two 0.718
        expected /= expected.sum()
    generator = torch.Generator().manual_seed(11)
    draws = 4000
    counts = torch.bincount(
        torch.tensor([choose(logits, sampling, generator) for _ in range(draws)]), minlength=6
    ).double()
    possible = expected > 0
    assert not counts[~possible].any()
    wanted = expected[possible] * draws
    assert ((counts[possible] - wanted).square() / wanted).sum() < 25.7
