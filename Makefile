# `make demo` and `make test` need Python >= 3.10 and make; everything else is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin

# One thread a process: the tests run in parallel, and spinning threads would only wait for others.
test fuzz: export OMP_NUM_THREADS := 1

.PHONY: demo test fuzz lint docs format benchmarks clean

demo: .venv/installed
	$(BIN)/dab bench --suite demo --out results/demo --cache results/cache
	$(BIN)/dab report results/demo

test: lint docs
	$(BIN)/python -m pytest -q -n 2

# The comparisons with slow twins again, on random inputs that are new each time.
fuzz: .venv/installed
	$(BIN)/python -m pytest -q -n 2 -m hypothesis --hypothesis-profile=fuzz

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation, into site/; a link that leads nowhere fails.
docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmarks: .venv/installed
	$(BIN)/python -m benchmarks.buffer
	$(BIN)/python -m benchmarks.step
	$(BIN)/python -m benchmarks.augmentations
	$(BIN)/python -m benchmarks.corruptions
	$(BIN)/python -m benchmarks.streams
	$(BIN)/python -m benchmarks.decoding

# The stamp is newer than what it was made from, so a changed dependency installs again.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	# The corruptions' test oracle asks for an opencv that clashes with the headless one.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		imagecorruptions-imaug==1.1.5
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis site results/demo results/cache
