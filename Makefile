# `make demo` and `make test` set up all they need in .venv; PYTHON names the interpreter to start from.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
PAIRS ?= 200000
TOPICS ?= 128

.PHONY: demo test lint types contracts check bench clean help

help:
	@echo "make demo       the main job on real text: ingest, fit on a local Dask cluster, print topics"
	@echo "make test       all tests, also with the compiler off"
	@echo "make lint types contracts    the other checks; .ci/run makes them all"
	@echo "make bench      benchmarks of the kernels"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY)
	rm -rf build/demo
	$(BIN)/collapsar demo build/demo

# Kernels run twice: compiled, and as plain Python, where an index out of range is an error.
test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup tests
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n $(WORKERS) -m kernels tests

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/numpydoc lint $$(find pipeline workers storage -name '*.py')

build/typed/collapsar:
	mkdir -p build/typed
	ln -sfn ../.. $@

types: $(READY) build/typed/collapsar
	MYPYPATH=build/typed $(BIN)/mypy -p collapsar.pipeline -p collapsar.workers -p collapsar.storage

contracts: $(READY)
	$(BIN)/lint-imports

check: lint types contracts test

bench: $(READY)
	COLLAPSAR_BENCH_PAIRS=$(PAIRS) COLLAPSAR_BENCH_TOPICS=$(TOPICS) $(BIN)/python -m pytest -p no:xdist --benchmark-enable --benchmark-only tests/benchmarks

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
