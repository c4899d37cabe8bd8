# Every target sets up what it needs in .venv and reuses it while it is up to date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
# Tests that measure real tables look for them here; they are skipped when it is empty.
export MCFLOW_DATA ?=
# More flags for the benchmark, such as BENCH_FLAGS="--jobs 2".
BENCH_FLAGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow browser page-pictures lint format speed bench bench-quick bench-images bench-draws ablation simulation example pictures docs clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

$(STAMP)-core: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing mcflow into $(VENV)"
	@$(PIP) --editable .
	@touch $@

$(STAMP)-dev: $(STAMP)-core
	@echo "installing the tools for tests into $(VENV)"
	@$(PIP) --editable '.[dev]'
	@touch $@

$(STAMP)-docs: $(STAMP)-dev
	@echo "installing the tools for docs into $(VENV)"
	@$(PIP) --editable '.[docs]'
	@touch $@

$(STAMP)-bench: $(STAMP)-core
	@echo "installing the tools for the benchmark into $(VENV)"
	@$(PIP) --editable '.[bench]'
	@touch $@

setup: $(STAMP)-dev ## make .venv with everything the tests need

demo: $(STAMP)-core ## fill the NHANES table that ships with the package
	@mkdir -p build
	$(BIN)/mcflow demo --output build/nhanes_filled.parquet

test: lint browser ## lint, types, import layers, and the tests with coverage
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist loadfile --cov --cov-report=term

test-slow: $(STAMP)-dev browser ## the tests that take minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

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

speed: $(STAMP)-dev ## measure speed, write speed/results/, README.md and the pages of docs
	$(BIN)/python speed/epoch.py
	$(BIN)/python speed/letter.py || test -z "$(MCFLOW_DATA)"
	$(BIN)/python speed/adult.py || test -z "$(MCFLOW_DATA)"
	$(BIN)/python speed/matmul.py
	$(BIN)/python speed/growth.py
	$(BIN)/python speed/million.py
	$(BIN)/python speed/draws.py || test -z "$(MCFLOW_DATA)"
	$(BIN)/python speed/images.py
	$(BIN)/python speed/evaluate.py || test -z "$(MCFLOW_DATA)"
	$(BIN)/python speed/parallel.py
	$(BIN)/python speed/ray_fill.py
	$(BIN)/python speed/streams.py --folder build/streams || test -z "$(MCFLOW_DATA)"
	$(BIN)/python speed/sizing.py
	$(BIN)/python speed/serve.py

bench: $(STAMP)-bench ## measure the paper's Table 1 into benchmarks/results and README.md; stop and resume at will
	$(BIN)/mcflow benchmark tables --output benchmarks/results --readme README.md $(BENCH_FLAGS)

bench-quick: $(STAMP)-bench ## a look at all methods in minutes, into build/bench-quick
	$(BIN)/mcflow benchmark tables --quick --output build/bench-quick $(BENCH_FLAGS)

ablation: $(STAMP)-core ## measure what each ingredient is worth into benchmarks/ablation and docs/ablation.md
	$(BIN)/mcflow benchmark ablation --output benchmarks/ablation --page docs/ablation.md $(BENCH_FLAGS)

bench-images: $(STAMP)-bench ## measure the paper's tables of images into benchmarks/images and docs/images_benchmark.md
	$(BIN)/mcflow benchmark images --output benchmarks/images --page docs/images_benchmark.md --figure 0.5,0.8,0.9,blocks:0.25 $(BENCH_FLAGS)

bench-draws: $(STAMP)-bench ## measure draws and intervals into benchmarks/results/draws and docs/calibration.md
	$(BIN)/mcflow benchmark tables --suite draws --output benchmarks/results --readme docs/calibration.md $(BENCH_FLAGS)

simulation: $(STAMP)-core ## measure pooled analyses of simulated studies into benchmarks/simulation and docs/simulation.md
	$(BIN)/mcflow benchmark simulation --output benchmarks/simulation --page docs/simulation.md $(BENCH_FLAGS)

example: $(STAMP)-dev ## a regression on NHANES with holes, beside complete cases and R's mice, into docs/nhanes.md
	$(BIN)/python examples/nhanes_regression.py

pictures: $(STAMP)-dev ## draw the pictures of the docs, and run the examples that have one
	$(BIN)/python docs/make_pictures.py
	$(BIN)/python examples/fill_a_table.py
	$(BIN)/python examples/draws_and_pooling.py
	$(BIN)/python examples/fill_images.py
	$(BIN)/python examples/evaluate_a_table.py

docs: $(STAMP)-docs ## build the documentation into docs/_build/html
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

clean: ## remove what the targets made
	rm -rf $(VENV) build docs/_build .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis
