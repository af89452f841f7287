# `make demo` and `make test` set up their environments; PYTHON names the interpreter for them.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := build/demo-venv
DEMO_READY := $(DEMO)/.ready
BENCH_READY := $(VENV)/.bench-ready
PAGES_READY := $(VENV)/.pages-ready
DEPLOY_READY := $(VENV)/.deploy-ready
DOCS_READY := $(VENV)/.docs-ready
# Tests of benchmarks and of deployment are left to `make test-all`.
APART := --ignore tests/benchmarks --ignore tests/deploy
# The modules whose tests run without the compiler too; importing all others would take longer than these tests.
KERNEL_TESTS = $(shell grep -rl --include 'test_*.py' 'mark\.kernels' tests/workers)
WORKERS ?= 2
PROCESSES ?= 3
PYTHONS ?= python3.12 python3.13
PAIRS ?= 200000
TOPICS ?= 128

HISTORIES ?= 10000
KILLS ?= 100
FUZZ ?= 100000
HOSTILE ?= 1000
HOSTILE_CORPORA ?= 1000
SHARE ?= 1
READERS := uci ldac mtx npz text jsonl csv mallet svmlight parquet uci-gz jsonl-gz jsonl-utf32 csv-bz2 csv-xz csv-zst \
	csv-lz4 csv-zip csv-utf16 csv-excel vocabulary shard shard-segments vocabulary-table manifest lineage run events \
	checkpoint comparison-cell model names summary arrays weights weights-table proportions config vectors-csv \
	vectors-labels vectors-npy vectors-npz vectors-zarr vectors-zarr-2 vectors-chunk vectors-shard vectors-array

# Modules are compiled once, not by each of the processes that tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test coverage test-all lint types contracts check docs docs-links pages deploy-check lowest dist newest hashes results bench bench-shapes bench-hosts chaos fuzz clean help

help:
	@echo "make demo       fit topics to real text on a local Dask cluster: topics over time, and a report"
	@echo "make test       the short tests, and those of kernels again without the compiler; make test-all: the long ones too"
	@echo "make coverage   the lines that make test runs, module by module"
	@echo "make lint types contracts    the other checks; .ci/run runs them and the tests"
	@echo "make docs       the site in build/docs/index.html; runs its examples and checks its links"
	@echo "make docs-links checks links to other sites too, as far as this machine can reach them"
	@echo "make pages      reports and the dashboard in headless Chromium (installs Debian's Chromium if it can)"
	@echo "make deploy-check    the files in deploy/, as far as they can be checked without a cluster"
	@echo "make lowest     the main job with the lowest versions that pyproject.toml allows"
	@echo "make dist       the source distribution and the wheel, in build/dist"
	@echo "make newest     the main job from the wheel with the newest versions, on $(PYTHON) and on PYTHONS=\"$(PYTHONS)\","
	@echo "                as far as they are installed"
	@echo "make hashes     writes deploy/requirements.txt, the container's packages with their hashes, from constraints.txt"
	@echo "make chaos      HISTORIES=$(HISTORIES) simulated clusters and KILLS=$(KILLS) kills of real processes: no run may be lost"
	@echo "make fuzz       FUZZ=$(FUZZ) inputs for every reader, HOSTILE=$(HOSTILE) changed arrays of each family's runs,"
	@echo "                HOSTILE_CORPORA=$(HOSTILE_CORPORA) hostile corpora through whole commands, and each file replaced by a pipe,"
	@echo "                a link or other bytes (SHARE=$(SHARE) of the cases)"
	@echo "make results    the tables and figures of docs/benchmarks/index.md, in $(OUT); continues after an interruption;"
	@echo "                PARTS=\"$(PARTS)\" selects parts, SOURCES=... is the folder of public corpora"
	@echo "make bench      times of kernels, and fits compared with other libraries on a small simulated corpus"
	@echo "make bench-shapes    fits compared with other libraries on many corpora; continues after an interruption;"
	@echo "                tables and plots in build/bench; CORPORA=... is their folder, SOURCES=... the folder of public files,"
	@echo "                and GRID, NAMES, COUNTS (of topics), CONTESTANTS, VARY, ITERATIONS, ROUNDS, LIMIT and RESULTS set the rest"
	@echo "make bench-hosts     one fit on 1 to 16 simulated hosts, for several link speeds (Linux, root, gcc); continues after an"
	@echo "                interruption; table in build/bench-hosts; HOSTS, LINKS, TOKENS, ITERATIONS and OPTIONS set its size"

$(DEMO_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[pandas,plots]'
	@touch $@

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# The demo needs none of the tools that the tests do, so it has an environment of its own.
demo: $(DEMO_READY)
	rm -rf build/demo
	$(DEMO)/bin/collapsium demo build/demo

# Kernels run twice: compiled, and as plain Python, where an index out of range is an error. Some tests wait for processes
# that they have stopped or killed, so there is one process more than processors. The short tests without the compiler run
# in one process, because each further process would spend a seventh of their CPU time on imports. Kernels are compiled
# before the tests: else each fit of a family would start child processes that compile the same helpers again.
test: $(READY)
	$(BIN)/collapsium compile
	$(BIN)/python -m pytest -n $(PROCESSES) --dist loadgroup -m "not long" $(APART) tests
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -m "kernels and not long" $(KERNEL_TESTS)

# Lines of the product that these tests run, without kernels; processes that tests start are counted too.
coverage: $(READY)
	rm -rf build/coverage
	mkdir -p build/coverage
	$(BIN)/collapsium compile
	$(BIN)/coverage run -m pytest -n $(PROCESSES) --dist loadgroup -m "not long" $(APART) tests
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest -m "kernels and not long" $(KERNEL_TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# Nightly and before releases: also the long tests, all option matrices, faults, fuzzing, pages and deployment.
test-all: $(READY)
	$(BIN)/collapsium compile
	$(BIN)/python -m pytest -n $(PROCESSES) --dist loadgroup tests
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n $(PROCESSES) -m kernels tests
	$(MAKE) deploy-check pages chaos fuzz lowest newest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.docstrings
	$(BIN)/python -m tests.language
	$(BIN)/python -m tests.private_names

build/typed/collapsium:
	mkdir -p build/typed
	ln -sfn ../.. $@

types: $(READY) build/typed/collapsium
	MYPYPATH=build/typed $(BIN)/mypy -p collapsium.pipeline -p collapsium.workers -p collapsium.storage

contracts: $(READY)
	$(BIN)/lint-imports

check: lint types contracts test

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

# Examples run once, and again where they have changed; `make clean` forgets them.
SPHINX := $(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -d build/doctrees

docs: $(DOCS_READY)
	$(SPHINX) -b html docs build/docs
	$(BIN)/python docs/check_links.py build/docs

docs-links: docs
	-$(SPHINX) -b linkcheck docs build/linkcheck > build/linkcheck.log 2>&1
	$(BIN)/python docs/check_links.py --external build/linkcheck/output.json

$(PAGES_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[pages]'
	@touch $@

# Screenshots are in build/pages.
pages: $(PAGES_READY)
	$(BIN)/python -m tests.pages

# Only the schemas of dask-kubernetes are needed, so its dependencies are not installed.
$(DEPLOY_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[deploy]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps dask-kubernetes
	@touch $@

deploy-check: $(DEPLOY_READY)
	$(BIN)/python -m tests.deploy -n $(WORKERS)

# What users install: the extras of pyproject.toml that are not for developers.
EXTRAS := dashboard mlflow normalise notebook prometheus s3 text
comma := ,
empty :=
space := $(empty) $(empty)
WITH_EXTRAS := .[$(subst $(space),$(comma),$(EXTRAS))]
UV := $(BIN)/uv --quiet

lowest: $(READY)
	rm -rf build/lowest
	$(UV) venv --python $(PYTHON) build/lowest/venv
	$(UV) pip install --python build/lowest/venv --resolution lowest-direct --editable '$(WITH_EXTRAS)'
	build/lowest/venv/bin/python -m tests.main_job build/lowest/job $(EXTRAS)

# The source distribution and the wheel made from it, as they would be published.
dist: $(READY)
	rm -rf build/dist
	$(BIN)/python -m build --outdir build/dist .
	$(BIN)/twine check --strict build/dist/*

newest: dist
	for python in $(PYTHON) $(PYTHONS); do \
		$$python --version || { echo "$$python is not installed: skipped"; continue; }; \
		rm -rf build/newest; \
		$(UV) venv --python $$python build/newest/venv && \
		$(UV) pip install --python build/newest/venv "$$(echo build/dist/*.whl)[$(subst $(space),$(comma),$(EXTRAS))]" && \
		build/newest/venv/bin/collapsium --version && \
		build/newest/venv/bin/python -m tests.main_job build/newest/job $(EXTRAS) || exit 1; \
	done

# Only names, versions and hashes: the installer's settings say where packages come from.
COMPILE := $(UV) pip compile --python-version 3.11 --python-platform x86_64-unknown-linux-gnu --generate-hashes --no-header \
	--no-annotate --no-emit-index-url --no-emit-find-links --constraint constraints.txt

hashes: $(READY)
	$(COMPILE) --extra dashboard --extra prometheus --extra s3 --output-file deploy/requirements.txt pyproject.toml deploy/requirements.in > /dev/null
	echo setuptools | $(COMPILE) --output-file deploy/requirements-build.txt - > /dev/null

$(BENCH_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	@touch $@

OUT ?= build/results
PARTS ?= truth peers cells scale commands

# Fits are measured one after another, each on one core.
results: $(BENCH_READY)
	$(BIN)/python -m tests.benchmarks.results run $(OUT) --parts "$(PARTS)" $(call option,SOURCES,sources)
	cp docs/benchmarks/index.md $(OUT)/index.md
	$(BIN)/python -m tests.benchmarks.results report $(OUT)/results.jsonl $(OUT)/index.md --figures $(OUT)

# An option of the comparison, if its variable is set.
option = $(if $($(1)),--$(2) '$($(1))')

RESULTS ?= build/bench/results.jsonl
CORPORA ?= build/bench/corpora

bench: $(BENCH_READY)
	COLLAPSIUM_BENCH_PAIRS=$(PAIRS) COLLAPSIUM_BENCH_TOPICS=$(TOPICS) $(BIN)/python -m pytest -p no:xdist --benchmark-enable --benchmark-only tests/benchmarks/test_kernels.py
	$(MAKE) bench-shapes NAMES=small COUNTS=$(TOPICS) CONTESTANTS='$(or $(CONTESTANTS),tomotopy*,topica*,gensim,scikit-learn,lda,hdp)'

bench-shapes: $(BENCH_READY)
	$(BIN)/python -m tests.benchmarks.shapes prepare $(CORPORA) $(call option,SOURCES,sources) $(call option,NAMES,corpora)
	$(BIN)/python -m tests.benchmarks.shapes run $(CORPORA) $(RESULTS) --workers $(WORKERS) \
		$(call option,GRID,grid) $(call option,NAMES,corpora) $(call option,COUNTS,topics) \
		$(call option,CONTESTANTS,contestants) $(call option,VARY,vary) $(call option,ITERATIONS,iterations) \
		$(call option,ROUNDS,rounds) $(call option,LIMIT,limit)
	$(BIN)/python -m tests.benchmarks.shapes report $(RESULTS) build/bench

# Hosts are network namespaces, which need root; where they cannot be made, a line gives the reason.
bench-hosts: $(READY)
	$(BIN)/python -m tests.benchmarks.hosts build/bench-hosts $(call option,HOSTS,hosts) $(call option,LINKS,links) \
		$(call option,TOKENS,tokens) $(call option,ITERATIONS,iterations) $(OPTIONS)

# A failing seed replays with: python -m tests.chaos.histories SEED
chaos: $(READY)
	for part in $$(seq 0 $$(($(WORKERS) - 1))); do \
		$(BIN)/python -m tests.chaos.histories $$part $(HISTORIES) $(WORKERS) & pids="$$pids $$!"; \
	done; for pid in $$pids; do wait $$pid || failed=1; done; exit $${failed:-0}
	$(BIN)/python -m tests.chaos.kills $(KILLS)
	$(BIN)/python -m tests.chaos.operations
	$(BIN)/python -m pytest -q tests/chaos/test_clusters.py

# Failing inputs are written to build/fuzz/READER. Hostile corpora go through whole commands with kernels that check bounds,
# and then with the compiler off.
fuzz: $(READY)
	$(BIN)/python -m tests.chaos.hostile_paths 0 $(HOSTILE_CORPORA)
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m tests.chaos.hostile_paths $(HOSTILE_CORPORA) $(HOSTILE_CORPORA)
	for reader in $(READERS); do \
		echo "== $$reader"; $(BIN)/python -m tests.chaos.fuzz $$reader $(FUZZ) || exit 1; \
	done
	$(BIN)/python -m tests.chaos.hostile_models $(HOSTILE)
	$(BIN)/python -m tests.chaos.hostile_files $(SHARE)

clean:
	rm -rf $(addprefix docs/,auto_gallery auto_pages auto_tutorials $(addprefix reference/,api commands families tables))
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
