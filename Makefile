# Every target sets up what it needs in .venv and reuses it while it is up to date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
# Tests that measure real tables look for them here; they are skipped when it is empty.
export MCFLOW_DATA ?=
# Virtual environments of methods that need versions of their own.
ENVIRONMENTS := build/environments
# More flags for the benchmark, such as BENCH_FLAGS="--jobs 2".
BENCH_FLAGS ?=

# Seconds of a run of the fuzzers.
FUZZ_SECONDS ?= 3600

.DEFAULT_GOAL := help
.PHONY: help setup demo test fuzz load test-slow browser page-pictures lint format speed bench bench-quick bench-images bench-draws bench-energy anytime environments ablation reproduction simulation example pictures docs clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

$(STAMP)-core: pyproject.toml bench/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing mcflow into $(VENV)"
	@$(PIP) --editable .
	@touch $@

$(STAMP)-dev: $(STAMP)-core
	@echo "installing the tools for tests into $(VENV)"
	@$(PIP) --editable '.[dev]' --editable bench
	@touch $@

$(STAMP)-docs: $(STAMP)-dev
	@echo "installing the tools for docs into $(VENV)"
	@$(PIP) --editable '.[docs]'
	@touch $@

$(STAMP)-bench: $(STAMP)-core
	@echo "installing the tools for the benchmark into $(VENV)"
	@$(PIP) --editable bench
	@touch $@

setup: $(STAMP)-dev ## make .venv with everything the tests need

demo: $(STAMP)-core ## fill the NHANES table that ships with the package
	@mkdir -p build
	$(BIN)/mcflow demo --output build/nhanes_filled.parquet

test: lint browser ## lint, types, import layers, and all tests with coverage
	@rm -f .coverage .coverage.*
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist loadfile --cov --cov-report= --cov-fail-under=0
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest bench -m "not slow" --numprocesses 2 --dist loadfile --cov --cov-append --cov-report=term

fuzz: $(STAMP)-dev ## fuzz files, frames and the server for an hour, from where the last run ended, and write docs/security.md
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz --seconds $(FUZZ_SECONDS) --folder build/fuzz --page docs/security.md

load: $(STAMP)-dev ## 50 clients for 10 minutes, some of them hostile, against a server on this machine, into docs/server.md
	$(BIN)/python bench/speed/load.py

test-slow: $(STAMP)-dev browser ## the tests that take minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow or hypothesis" --hypothesis-profile thorough

browser: ## install Chromium for the tests of the page where that is possible, or say that they are skipped
	@command -v chromium chromium-browser google-chrome >/dev/null 2>&1 \
	|| { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "installing Chromium" \
	&& { apt-get install -qq -y chromium >/dev/null 2>&1 || { apt-get update -qq && apt-get install -qq -y chromium >/dev/null 2>&1; }; }; } \
	|| echo "no Chromium here: the browser tests are skipped (as root: apt-get install chromium)"

page-pictures: $(STAMP)-dev browser ## take the pictures of the page, by its tests, into docs/pictures
	MCFLOW_PICTURES=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/serve/test_browser.py

lint: $(STAMP)-dev ## ruff, mypy and the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)-dev ## put the code into the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

speed: $(STAMP)-dev ## measure speed, write bench/speed/results/ and the pages of docs
	$(BIN)/python bench/speed all

bench: $(STAMP)-bench ## measure the paper's Table 1 into bench/results/tables, docs/benchmark.md and README.md; stop and resume at will
	$(BIN)/mcflow benchmark tables --output bench/results/tables --page docs/benchmark.md --readme README.md $(BENCH_FLAGS)

bench-quick: $(STAMP)-bench ## a look at all methods in minutes, into build/bench-quick
	$(BIN)/mcflow benchmark tables --quick --output build/bench-quick $(BENCH_FLAGS)

ablation: $(STAMP)-bench ## measure what each ingredient is worth into bench/results/ablation and docs/ablation.md
	$(BIN)/mcflow benchmark ablation --output bench/results/ablation --page docs/ablation.md $(BENCH_FLAGS)

reproduction: $(STAMP)-bench ## compare the paper's method with its Table 1 and vary its choices, into bench/results/reproduction and docs/reproduction.md
	$(BIN)/mcflow benchmark reproduction --output bench/results/reproduction --tables bench/results/tables --page docs/reproduction.md $(BENCH_FLAGS)

anytime: $(STAMP)-bench environments ## measure error against time into bench/results/anytime, docs/anytime.md and README.md
	$(BIN)/mcflow benchmark anytime --output bench/results/anytime --page docs/anytime.md --readme README.md --environments $(ENVIRONMENTS) $(BENCH_FLAGS)

environments: ## install miceforest and HyperImpute, each into a virtual environment of its own, or say that it cannot be
	@for name in miceforest hyperimpute; do \
	folder=$(ENVIRONMENTS)/$$name; \
	if test $$folder/.stamp -nt bench/environments/$$name.txt; then continue; fi; \
	echo "installing $$name into $$folder"; \
	if $(PYTHON) -m venv --clear $$folder && $$folder/bin/python -m pip install -qq --disable-pip-version-check --requirement bench/environments/$$name.txt; \
	then touch $$folder/.stamp; \
	else rm -rf $$folder; echo "$$name cannot be installed here; the page says so"; fi; \
	done

bench-images: $(STAMP)-bench ## measure the paper's tables of images into bench/results/images and docs/images_benchmark.md
	$(BIN)/mcflow benchmark images --output bench/results/images --page docs/images_benchmark.md --figure 0.5,0.8,0.9,blocks:0.25 $(BENCH_FLAGS)

bench-draws: $(STAMP)-bench ## measure draws and intervals into bench/results/draws and docs/calibration.md
	$(BIN)/mcflow benchmark draws --output bench/results/draws --page docs/calibration.md $(BENCH_FLAGS)

bench-energy: $(STAMP)-bench ## measure the energy distance of draws, beside R's mice, into bench/results/energy and docs/energy.md
	$(BIN)/mcflow benchmark draws --energy --output bench/results/energy --page docs/energy.md $(BENCH_FLAGS)

simulation: $(STAMP)-bench ## measure pooled analyses of simulated studies into bench/results/simulation and docs/simulation.md
	$(BIN)/mcflow benchmark simulation --output bench/results/simulation --page docs/simulation.md $(BENCH_FLAGS)

example: $(STAMP)-dev ## a regression on NHANES with holes, beside complete cases and R's mice, into docs/nhanes.md
	$(BIN)/python examples/nhanes_regression.py

pictures: $(STAMP)-dev ## draw the pictures of the docs, and run the quick start of README.md
	$(BIN)/python docs/make_pictures.py
	$(BIN)/python docs/quick_start.py
	$(BIN)/python examples/draws_and_pooling.py

docs: $(STAMP)-docs ## build the documentation into docs/_build/html
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

clean: ## remove what the targets made
	rm -rf $(VENV) build docs/_build .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis
