"""Configurations of the Hopper kernel of indexer_scores: the scoring half of the prefill kernel."""

from __future__ import annotations

from msa_ops.cute.indexer_prefill.sm90_configs import ARGUMENTS, configs, supports

from msa_ops.build.unit import Family

FAMILY = Family(
    op="indexer_scores",
    module="msa_ops.cute.indexer_prefill.sm90_scores",
    archs=("sm_90a",),
    arguments=ARGUMENTS,
    configs=configs(choose=False),
    supports=supports,
    shared_memory=lambda config: config.shared_memory,
)
