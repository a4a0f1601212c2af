# `make demo` and `make test` need Python >= 3.10 and make. Everything else is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test quick fuzz lint docs format benchmarks dist clean

demo: .venv/demo
	$(BIN)/dab bench --suite demo --out results/demo --cache results/cache
	$(BIN)/dab report results/demo

test: lint docs
	$(BIN)/python -m pytest -q -n 2

# The inner loop: unit tests and doctests, under a minute.
quick: .venv/dev
	$(BIN)/python -m pytest -q -n 2 -m "not slow" tests/unit src

# The comparisons with slow twins, on new random inputs each time, and what is tried exhaustively.
fuzz: .venv/dev
	$(BIN)/python -m pytest -q -n 2 -m "hypothesis or exhaustive" --hypothesis-profile=fuzz

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

# The documentation, into site/. A broken link fails.
docs: .venv/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Every module of benchmarks/, one after the other.
benchmarks: .venv/dev
	for module in $(sort $(basename $(notdir $(wildcard benchmarks/[!_]*.py)))); do \
		$(BIN)/python -m benchmarks.$$module || exit 1; \
	done

# The sdist and the wheel, into dist/. The unpacked sdist then runs its own unit tests on its own
# sources (PYTHONPATH comes before the editable install), with the packages in .venv.
dist: .venv/dev
	rm -rf dist
	$(BIN)/python -m build
	mkdir dist/unpacked && tar xf dist/*.tar.gz -C dist/unpacked --strip-components 1
	cd dist/unpacked && PYTHONPATH=$$PWD/src ../../$(BIN)/python -m pytest -q -n 2 tests/unit
	rm -rf dist/unpacked

# A stamp is newer than what it was made from, so a changed dependency installs again.
.venv/demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -c constraints.txt -e '.[benchmark]'
	touch $@

.venv/dev: pyproject.toml constraints.txt .ci/fit_torchvision.py
	$(PYTHON) -m venv .venv
	$(PIP) -c constraints.txt -e '.[dev]'
	# The reference for the corruptions requires an opencv that conflicts with the headless one.
	$(PIP) --no-deps imagecorruptions-imaug==1.1.5
	$(BIN)/python .ci/fit_torchvision.py
	touch .venv/demo $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist site results/demo results/cache
