# Every target sets up what it needs. Plain python3 (3.11 or newer) and make.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/ready

.PHONY: setup train test test-slow test-slurm test-tpu-wheel rehearse chaos check coverage bench peers clean

setup: $(READY)

# Made last, so that an interrupted installation starts again.
$(READY): setup.cfg constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is older than 3.11; use make PYTHON=python3.11"; exit 2; }
	@echo "Installing into $(VENV), once; takes a minute or two."
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[cpu,rehearsal,report,onnx,test,dev]'
	@touch $@

train: setup
	$(RUN) train.py

# Two processes, as the machine to be fast on has two cores.
test: setup
	$(RUN) -m pytest -m 'not slow' -n 2 --dist loadfile --no-loadscope-reorder

test-slow: setup
	$(RUN) -m pytest -m slow

# A real Slurm of two nodes on this machine, in namespaces of Linux.
test-slurm: setup
	@{ command -v slurmd && command -v munged; } > /dev/null || { apt-get update && \
		apt-get install --yes --no-install-recommends slurm-wlm munge; } || \
		{ echo "make: needs slurmd and munged: as root, apt-get install slurm-wlm munge"; exit 2; }
	$(RUN) -m pytest tests/deploy/test_slurm.py

# The same with the wheel for TPUs, without a TPU: in an environment of its own,
# as the two wheels are one module. It is of another TensorFlow than the pinned.
# Without the variable libtpu asks Google Cloud for a TPU, for 100 s a process.
test-tpu-wheel: $(VENV)-tpu/ready
	TPU_LOAD_LIBRARY=0 $(VENV)-tpu/bin/python -m pytest -m 'not slow' -n 2 --dist loadfile --no-loadscope-reorder

$(VENV)-tpu/ready: setup.cfg constraints.txt
	$(PYTHON) -m venv $(VENV)-tpu
	grep -Ev '^(tensorflow|tensorboard|libtpu)=' constraints.txt > $(VENV)-tpu/constraints.txt
	$(VENV)-tpu/bin/python -m pip install --quiet --constraint $(VENV)-tpu/constraints.txt --editable '.[tpu,report,test]'
	@touch $@

# Two layouts of a TPU, proved on this machine. The pages are in runs/.
rehearse: setup
	$(RUN) train.py --mode=rehearse --strategy=tpu --tpu_topology=v5e:2x2 --model=cnn --computation_shape=2,2,1,1 --partition_dimensions=1,2,2,1 --model_dir=runs/rehearse-cnn
	$(RUN) train.py --mode=rehearse --strategy=tpu --tpu_topology=v5e:2x2 --model_options=split_groups=true --computation_shape=2,1,1,1 --model_dir=runs/rehearse-equilibrium

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

# PyTorch, in an environment of its own.
peers: $(VENV)-peers/ready

$(VENV)-peers/ready: benchmarks/requirements-peers.txt
	$(PYTHON) -m venv $(VENV)-peers
	$(VENV)-peers/bin/python -m pip install --quiet --requirement $<
	@touch $@

# All benchmarks, then README's table of what they found. Takes about two hours.
# Peers are kept apart from what is measured; one that cannot be installed is
# left out.
bench: setup
	-test -d $(VENV)-orbit || $(RUN) -m pip install --quiet --no-deps --target $(VENV)-orbit -r benchmarks/requirements-orbit.txt
	-$(MAKE) peers
	PYTHONPATH=$(VENV)-orbit $(RUN) -m benchmarks
	$(RUN) -m benchmarks._table

clean:
	rm -rf $(VENV) $(VENV)-* *.egg-info .coverage* .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
