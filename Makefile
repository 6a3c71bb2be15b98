# Every target makes .venv by itself. Only Python 3.11+, make and git are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
DEMO_READY := $(VENV)/.demo-ready
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

.PHONY: demo test test-slow test-all test-torch lint docs docs-check release-check bench torture figure clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $(READY) $(DEMO_READY)

$(DOCS_READY): pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[docs]'
	touch $(DOCS_READY)

# The package and matplotlib, without the tools of developers.
$(DEMO_READY): pyproject.toml | $(BIN)/python
	@echo "Installing online-psp into $(VENV); this takes about a minute."
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --editable '.[plot]'
	touch $(DEMO_READY)

demo: $(DEMO_READY)
	@echo "Components form, a stream drifts, missing values are filled: one picture."
	$(BIN)/psp demo
	@echo "psp is $(BIN)/psp; after 'source $(BIN)/activate' it is psp."

# The site, into docs/_build/html; warnings are errors, and so is a link inside it that leads nowhere.
docs: $(DOCS_READY)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python docs/check_site.py docs/_build/html
	@echo "docs/_build/html/index.html"

# What can be said of the documentation without building it: spelling, and every code block.
docs-check: $(READY)
	$(BIN)/codespell README.md CONTRIBUTING.md SECURITY.md CODE_OF_CONDUCT.md CHANGELOG.md matlab/README.md docs src
	$(BIN)/pytest -n 2 tests/slow/test_docs.py

# Wheel and sdist: built, looked into, installed in a fresh environment and used there. Needs a package index.
release-check: | $(BIN)/python
	$(BIN)/pip install --quiet 'build>=1.2' 'twine>=6.0'
	$(BIN)/python -m tests.release_check

# Two processes with one thread of BLAS each: threads of two processes keep each other from the cores.
PYTEST := $(ONE_THREAD) $(BIN)/pytest -n 2 --dist worksteal

# What answers while one thinks: no process, browser or cluster is started.
test: $(READY)
	@echo "Unit and contract tests: all that starts no process, browser or cluster."
	$(PYTEST) tests/unit tests/contract
	@echo "The rest: 'make test-slow' (processes, kills, browsers, clusters), or all of it: 'make test-all'."

test-slow: $(READY)
	$(PYTEST) tests/slow

test-all: $(READY)
	$(PYTEST) tests/unit tests/contract tests/slow

# Tensors, where torch is installed; `make test` has skipped them if it was not.
test-torch: $(READY)
	$(PYTEST) tests/contract/test_arrays.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	for study in others speed tracking missing merging streams published; do $(BIN)/psp bench $$study --out out/bench || exit 1; done

# Kills, damaged files, full disks, slow pipes: an hour of them, or MINUTES=5.
MINUTES ?= 60
torture: $(READY)
	$(BIN)/python -m tests.torture --minutes $(MINUTES)

# One part of the docs with its pictures, measured anew on a machine that does nothing else: NAME is others (with ARGS='--only …'), speed, tracking,
# missing, merging, streams or published; or fig1 to fig4, which go on from what OUT holds.
NAME ?= others
ARGS ?=
OUT ?= out/figures/$(NAME)
figure: $(READY)
	$(BIN)/psp $(if $(filter fig%,$(NAME)),reproduce $(NAME) --jobs 1,bench $(NAME)) --out $(OUT) $(ARGS)
	$(BIN)/python docs/put_results.py $(OUT) $(NAME)

clean:
	rm -rf $(VENV) build dist docs/_build docs/gallery docs/api/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
