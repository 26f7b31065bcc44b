# `make help` lists the verbs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The CPU build where the package index offers one. For CPU wheels from another index set PIP_EXTRA_INDEX_URL.
TORCH ?= torch==2.13.0

# What builds the extension is in the virtual environment, so that `make wheel` goes on from the objects of `make install`: in
# an isolated environment, whose paths are new each time, everything is compiled again.
BUILD_REQUIRES = $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])') cmake ninja

# Threads of the CPU library sleep instead of spinning when they wait: on a busy machine spinning costs minutes.
export OMP_WAIT_POLICY ?= PASSIVE

.DEFAULT_GOAL := help
# Architectures whose kernels go into the wheel; empty builds one without kernels.
ARCHS ?= sm_90a sm_100a sm_103a gfx950

.PHONY: help install demo test check format bench kernels wheel clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*##/ {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.installed: pyproject.toml CMakeLists.txt $(wildcard bindings/* emulator/*/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q '$(TORCH)' 'numpy>=2.0'
	$(BIN)/python -m pip install -q $(BUILD_REQUIRES)
	@echo 'compiling the extension: 6 to 15 minutes on two cores'
	$(BIN)/python -m pip install -q --no-build-isolation -e '.[dev]' -C cmake.define.MSA_OPS_KERNELS=
	touch $@

install: $(VENV)/.installed ## virtual environment with the package and its tools

demo: install ## the reference model end to end on the CPU
	$(BIN)/msa-ops demo

check: install ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check ## check, then the test suite without its slow part
	$(BIN)/python -m pytest -q tests/test_lean_import.py tests/registry
	$(BIN)/python -m pytest -q -m 'not slow' --ignore tests/test_lean_import.py --ignore tests/registry --ignore tests/model
	$(BIN)/python -m pytest -q -m 'not slow' tests/model

format: install ## rewrite the sources as the formatter wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install ## the small benchmark of all ops on this machine
	$(BIN)/msa-ops bench perf/workloads/cpu_smoke.toml

kernels: install ## compile the kernels of ARCHS and check their budgets
	$(BIN)/python -m pip install -q $$($(BIN)/python -m msa_ops.build.toolchain)
	$(BIN)/python -m msa_ops.build $(addprefix --arch ,$(ARCHS)) --check-budgets perf/budgets

wheel: $(if $(ARCHS),kernels,install) ## a wheel for this Python in dist/
	$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w dist \
	  -C cmake.define.MSA_OPS_KERNELS=$(if $(ARCHS),$(CURDIR)/build/kernels) .

clean: ## remove what was built, and the virtual environment
	rm -rf $(VENV) build dist
