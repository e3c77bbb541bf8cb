# Every target sets up .venv by itself. Variables, all optional:
#   make demo PYTHON=python3.12        the interpreter that .venv is made from (>= 3.11)
#   make demo TORCH_INDEX=URL          a package index to look for torch on, beside the usual one: PyTorch's install page
#                                      names the address of its CPU builds, which are a tenth of the CUDA build's size
#   make demo ARGS="problem.budget_fraction=0.7"  overrides for the demo, or arguments for pytest in test and soak
#   make test WORKERS=1                so many processes share the tests, by default one more than cores, as some tests
#                                      wait; 0: none but pytest itself
PYTHON ?= python3
TORCH_INDEX ?=
ARGS ?=
WORKERS ?= $(shell expr 1 + $$(env -u OMP_NUM_THREADS nproc))
MAX_JOBS ?= $(shell env -u OMP_NUM_THREADS nproc)
export MAX_JOBS

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
NATIVE_SOURCES := $(shell find csrc -name '*.cpp' -o -name '*.h' 2>/dev/null)
NATIVE = $(BAYPLAN_NATIVE)
BUILD = BAYPLAN_NATIVE=$(NATIVE) $(BIN)/python setup.py --quiet build_ext --inplace && touch $(VENV)/built

.PHONY: help demo test soak lint bench build native clean gpu gpu-wheels
.DELETE_ON_ERROR:

help:
	@echo 'make demo    a GPT fails inside a memory budget, then trains inside it under a heuristic and an optimal plan'
	@echo 'make test    the tests, native extensions required      make soak    the long ones'
	@echo '             on all cores: WORKERS=1 uses one; some: ARGS="tests/solvers -k name -x"'
	@echo 'make lint    style, types, import contracts             make bench   speed of solvers and hooks'
	@echo 'make gpu     on a machine with a GPU, with its own PYTHON, no .venv and no index: nine minutes, seven files'
	@echo '             make gpu-wheels gathers what such a machine lacks, to be carried there'
	@echo 'make build   .venv and native extensions, rebuilt       make clean   removes both, and what runs left behind'

demo: $(VENV)/built
	$(BIN)/bayplan compare experiment=demo $(ARGS)

# What is asked of native code is decided per target: tests must not pass by skipping it.
test soak: NATIVE := require
# Tests start hundreds of Pythons, each of which would compile all that it imports where this is set.
test soak: export PYTHONDONTWRITEBYTECODE :=

test: $(VENV)/built
	BAYPLAN_NATIVE=require $(BIN)/python -m pytest -m "not soak and not gpu" -n $(WORKERS) --durations=15 $(ARGS)

soak: $(VENV)/built
	BAYPLAN_NATIVE=require $(BIN)/python -m pytest -m soak --timeout=0 --durations=0 $(ARGS)

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(if $(NATIVE_SOURCES),$(BIN)/clang-format --dry-run -Werror $(NATIVE_SOURCES))

bench: $(VENV)/built
	$(BIN)/python -m experiments.bench $(ARGS)

# With the machine's own Python (3.12 and torch 2.11 for CUDA, say): OUT=FOLDER takes the results, ARGS="--device sim"
# rehearses without a GPU. Whatever is lacking is said, and the rest goes on.
gpu:
	$(PYTHON) -m experiments.gpu --wheels gpu-wheels $(ARGS)

gpu-wheels: $(VENV)/ready
	$(BIN)/python -m experiments.gpu.wheels gather gpu-wheels

# Always asks the build, which compiles only what changed: sources, flags, or the torch underneath. It needs no more than
# that: with -j2 it goes on while the rest is installed.
build: native $(VENV)/ready

native: $(VENV)/torch
	$(BUILD)

$(VENV)/built: $(VENV)/torch $(NATIVE_SOURCES) | $(VENV)/ready
	$(BUILD)

# Torch goes in first, so that the package is built against the torch it will run with and pip keeps no second one; and
# NumPy, which torch imports if it is there: not while it is half there.
# An interrupted install leaves no stamp, so the next run repairs it; a .venv that is already there is completed.
$(VENV)/torch: pyproject.toml setup.py constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bayplan needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch numpy setuptools wheel ninja
	touch $@

$(VENV)/ready: $(VENV)/torch
	BAYPLAN_NATIVE=skip $(PIP) install -q -c constraints.txt --no-build-isolation -e ".[dev,models,sweeps]"
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info runs outputs multirun runtime/*.so solvers/joint/*.so solvers/replan/exact/*.so solvers/swap/*.so
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find solvers runtime conf experiments tests -name __pycache__ -type d -prune -exec rm -rf {} +
