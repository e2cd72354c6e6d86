# Every target sets up what it needs. Plain python3 (3.11 or newer) and make.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/ready

.PHONY: setup train test test-slow chaos check coverage bench clean

setup: $(READY)

# Made last, so that an interrupted installation starts again.
$(READY): setup.cfg constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is older than 3.11; use make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[cpu,test,dev]'
	@touch $@

train: setup
	$(RUN) train.py

# Two processes, as the machine to be fast on has two cores.
test: setup
	$(RUN) -m pytest -m 'not slow' -n 2 --dist loadfile

test-slow: setup
	$(RUN) -m pytest -m slow

# Takes about half an hour. PARTS="--only=damage --seed=2" runs less.
chaos: setup
	$(RUN) -m tests.chaos.chaos --json=runs/chaos.json $(PARTS)

# Branch coverage of the whole suite, child processes included.
coverage: setup
	$(RUN) -m coverage erase
	$(RUN) -m coverage run -m pytest -m 'not slow'
	$(RUN) -m coverage combine --quiet
	$(RUN) -m coverage report

check: setup
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy .
	$(RUN) -m codespell_lib --skip='./.git,./.venv,./runs' .

bench: setup
	@mkdir -p runs
	$(RUN) -m benchmarks.loop --json=runs/bench-loop.json
	$(RUN) -m benchmarks.checkpoint --json=runs/bench-checkpoint.json
	$(RUN) -m benchmarks.layers --json=runs/bench-layers.json

clean:
	rm -rf $(VENV) *.egg-info .coverage* .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
