"""The contract of dense_attention, on every backend that this machine can execute."""

from __future__ import annotations

from tests.contract.paged_attention_contract import PagedAttentionContract

OP = "dense_attention"


class TestDenseAttention(PagedAttentionContract):
    pass
