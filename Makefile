# Every target makes .venv by itself. Only Python 3.11+, make and git are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-interpreted lint bench torture comparison-page clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/psp demo

test: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal

# The same kernels as plain Python, on small sizes.
test-interpreted: $(READY)
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n 2 --dist worksteal tests/test_algorithms.py tests/test_numerics.py tests/test_bad_input.py tests/test_smallest.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/psp bench
	$(BIN)/python -m benchmarks

# Kills, damaged files, full disks, slow pipes: an hour of them, or MINUTES=5.
MINUTES ?= 60
torture: $(READY)
	$(BIN)/python -m tests.torture --minutes $(MINUTES)

# The figures of docs/comparison.md, measured anew; for a machine that does nothing else.
comparison-page: $(READY)
	$(BIN)/psp bench --out out/bench
	cp out/bench/comparison.png docs/img/comparison.png
	sed -i -e '/psp bench: begin/,/psp bench: end/{//!d}' -e '/psp bench: begin/r out/bench/comparison.md' docs/comparison.md

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
