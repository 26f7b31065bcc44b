"""The `msa-ops` command: one module a verb, each with `add_parser` and `run`."""
