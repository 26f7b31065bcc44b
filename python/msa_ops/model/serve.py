"""A serving loop in one file: continuous batching, chunked prefill, paged allocation, sampling.

Each step computes up to `max_tokens` tokens: one for every request that is decoding, then prompt chunks with what is
left. A request that needs a page when none is free makes the youngest one give up its pages; that one starts again
later from its prompt and the tokens it has, and gives the same text.
"""

from __future__ import annotations

import math
import operator
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from msa_ops.cache.allocator import PageAllocator
from msa_ops.cache.page import PAGE_SIZE
from msa_ops.model.errors import ModelError
from msa_ops.model.kv import Batch, Chunk, KVCache
from msa_ops.model.layers import Observer
from msa_ops.model.model import Model
from msa_ops.model.progress import Progress


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen. temperature 0 is greedy; otherwise draws depend on `seed` and not on the batch.

    top_p: the smallest set of tokens with at least this probability is drawn from.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature: {self.temperature}; accepted: 0 or more, finite")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: {self.top_p}; accepted: above 0, to 1")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed: {self.seed}; accepted: 0 to 2^63 - 1")


@dataclass(frozen=True)
class Request:
    prompt: Sequence[int]
    max_new_tokens: int = 16
    sampling: Sampling = Sampling()
    stop_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Completion:
    """`tokens`: the new ones, a stop token included. reason: "stop" or "length"."""

    request: int
    prompt_tokens: int
    tokens: list[int]
    reason: str


@dataclass(frozen=True)
class StepStats:
    """Tokens of prompts and of decoding that a step computed, and its seconds."""

    prefill_tokens: int
    decode_tokens: int
    seconds: float


@dataclass(eq=False)
class _Sequence:
    number: int
    request: Request
    tokens: list[int]
    generator: torch.Generator
    computed: int = 0
    pages: list[int] = field(default_factory=list)

    @property
    def pending(self) -> int:
        """Tokens whose keys and values the cache does not hold yet; 1 while decoding."""
        return len(self.tokens) - self.computed


class Engine:
    """Serves requests on one model. `num_pages` and the formats make the cache; see KVCache.

    max_tokens: tokens a step. max_requests: requests that are in flight at once.
    """

    def __init__(
        self,
        model: Model,
        *,
        num_pages: int,
        kv_format: str = "nvfp4",
        index_format: str = "nvfp4",
        rounding: str = "exact",
        max_tokens: int = 512,
        max_requests: int = 64,
        observe: Observer | None = None,
    ) -> None:
        if not 1 <= max_requests <= max_tokens:
            raise ValueError(f"max_requests: {max_requests}; accepted: 1 to max_tokens, {max_tokens}")
        self.model, self.observe = model, observe
        self.max_tokens, self.max_requests = max_tokens, max_requests
        self.device = model.embedding.device
        self.cache = KVCache(
            model.config,
            num_pages,
            kv_format=kv_format,
            index_format=index_format,
            rounding=rounding,
            device=self.device,
        )
        self.allocator = PageAllocator(num_pages)
        self.waiting: deque[_Sequence] = deque()
        self.running: list[_Sequence] = []  # oldest first
        self.stats: list[StepStats] = []
        self.preemptions = 0
        self._submitted = 0

    def submit(self, request: Request) -> int:
        """Queues a request and returns its number. Raises ValueError if it could never be served."""
        try:
            prompt = [operator.index(token) for token in request.prompt]
            operator.index(request.max_new_tokens)
        except TypeError as error:
            raise ValueError(f"prompt, max_new_tokens: {error}; accepted: integers") from None
        if not prompt:
            raise ValueError("prompt: empty; accepted: at least one token")
        if request.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens: {request.max_new_tokens}; accepted: 1 or more")
        vocabulary = self.model.config.vocab_size
        if not all(0 <= token < vocabulary for token in prompt):
            raise ValueError(f"prompt: token ids {min(prompt)} to {max(prompt)}; accepted: 0 to {vocabulary - 1}")
        longest = len(prompt) + request.max_new_tokens
        room = min(self.model.max_seq_len, self.cache.num_pages * PAGE_SIZE)
        if longest > room:
            raise ValueError(
                f"prompt: {len(prompt)} tokens and {request.max_new_tokens} new ones; accepted: {room} together "
                f"(max_seq_len {self.model.max_seq_len}, cache of {self.cache.num_pages * PAGE_SIZE} tokens)"
            )
        generator = torch.Generator().manual_seed(request.sampling.seed)
        self.waiting.append(_Sequence(self._submitted, request, prompt, generator))
        self._submitted += 1
        return self._submitted - 1

    def run(self, requests: Iterable[Request] = (), *, progress: bool = False) -> list[Completion]:
        """Submits the requests and steps until nothing is left; completions in order of submission."""
        for request in requests:
            self.submit(request)
        total = sum(len(s.tokens) + s.request.max_new_tokens - 1 for s in self.waiting)
        done: list[Completion] = []
        with Progress(total, "serving", "token", show=progress) as bar:
            while self.waiting or self.running:
                done += self.step()
                bar.update(self.stats[-1].prefill_tokens + self.stats[-1].decode_tokens)
        return sorted(done, key=lambda completion: completion.request)

    def step(self) -> list[Completion]:
        """Computes one batch; returns the requests that it finished."""
        start = time.perf_counter()
        scheduled = self._schedule()
        if not scheduled:
            if self.waiting or self.running:
                raise RuntimeError("no request can be scheduled: pages of the cache are lost")
            return []
        chunks = [Chunk(s.tokens[s.computed : s.computed + n], s.computed, s.pages) for s, n in scheduled]
        batch = Batch.of(chunks, self.device)
        hidden = self.model(batch, self.cache, self.observe)
        decode_tokens = sum(n for s, n in scheduled if s.pending == 1)
        prefill_tokens = sum(n for _, n in scheduled) - decode_tokens
        for sequence, count in scheduled:
            sequence.computed += count
        ready = [row for row, (sequence, _) in enumerate(scheduled) if sequence.pending == 0]
        done = self._sample([scheduled[row][0] for row in ready], hidden[batch.last[ready]]) if ready else []
        self.stats.append(StepStats(prefill_tokens, decode_tokens, time.perf_counter() - start))
        return done

    def _schedule(self) -> list[tuple[_Sequence, int]]:
        """Sequences and how many of their tokens to compute, with pages for them.

        A request is admitted only with what all running ones have left of the budget, so that none but the youngest
        can be amid its prompt, and a prompt never holds up those that decode.
        """
        budget = self.max_tokens
        scheduled: list[tuple[_Sequence, int]] = []
        for sequence in list(self.running):
            if sequence in self.running:  # it may have lost its pages to an older one
                count = min(sequence.pending, budget)
                if self._provide_pages(sequence, count):
                    scheduled.append((sequence, count))
                    budget -= count
        while self.waiting and budget and len(self.running) < self.max_requests:
            sequence = self.waiting[0]
            count = min(sequence.pending, budget)
            if self._pages_short(sequence, count) > self.allocator.available:
                break
            self.running.append(self.waiting.popleft())
            self._provide_pages(sequence, count)
            scheduled.append((sequence, count))
            budget -= count
        return scheduled

    def _pages_short(self, sequence: _Sequence, count: int) -> int:
        return -(-(sequence.computed + count) // PAGE_SIZE) - len(sequence.pages)

    def _provide_pages(self, sequence: _Sequence, count: int) -> bool:
        """Gets pages for `count` more tokens, from the youngest sequences if need be; False if it lost its own."""
        while (short := self._pages_short(sequence, count)) > self.allocator.available:
            youngest = self.running.pop()
            self.allocator.free(youngest.pages)
            youngest.pages, youngest.computed = [], 0
            self.waiting.appendleft(youngest)
            self.preemptions += 1
            if youngest is sequence:
                return False
        sequence.pages += self.allocator.allocate(max(short, 0))
        return True

    def _sample(self, sequences: list[_Sequence], hidden: Tensor) -> list[Completion]:
        logits = self.model.logits(hidden).cpu()
        done = []
        for sequence, row in zip(sequences, logits, strict=True):
            if not torch.isfinite(row).all():
                raise ModelError(
                    f"request {sequence.number}: logits after token {len(sequence.tokens)} are not finite; "
                    "the checkpoint holds NaN or infinite weights, or its dtype is too narrow"
                )
            token = choose(row, sequence.request.sampling, sequence.generator)
            sequence.tokens.append(token)
            new = len(sequence.tokens) - len(sequence.request.prompt)
            stopped = token in sequence.request.stop_token_ids
            if stopped or new == sequence.request.max_new_tokens:
                self.running.remove(sequence)
                self.allocator.free(sequence.pages)
                prompt_tokens = len(sequence.request.prompt)
                reason = "stop" if stopped else "length"
                done.append(Completion(sequence.number, prompt_tokens, sequence.tokens[prompt_tokens:], reason))
        return done


def choose(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """A token id from fp32 logits [vocabulary]: the largest (the lowest id of equal ones), or a draw.

    A draw is the largest of logits / temperature + Gumbel noise, which has the softmax's distribution.
    """
    if sampling.temperature == 0:
        return int(logits.argmax())
    scaled = (logits.double() - logits.max()) / sampling.temperature  # at most 0: no temperature overflows upwards
    if sampling.top_p < 1:
        probabilities, order = scaled.softmax(-1).sort(descending=True)
        before = probabilities.cumsum(-1) - probabilities
        scaled[order[before >= sampling.top_p]] = -torch.inf
    uniform = torch.rand(scaled.shape, dtype=torch.float64, generator=generator)
    return int((scaled - torch.log(-torch.log(uniform))).argmax())
