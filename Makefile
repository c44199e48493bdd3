# Each target sets up what it needs: only Python >= 3.10, make and git must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# A module is compiled when it is first imported, and once: compiling all of PyTorch takes half a minute.
unexport PYTHONDONTWRITEBYTECODE
# One more worker than cores, as many tests wait for a process or a page; each takes a file at a time, or a room whose
# tests share what takes seconds to start (tests/conftest.py).
WORKERS = $(shell $(PYTHON) -c "import os; print(min(4, 1 + os.cpu_count()))")
PYTEST = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 "$(CURDIR)/$(BIN)/pytest" -n $(WORKERS) --dist loadscope
PIP := $(BIN)/pip install --quiet --no-compile --constraint requirements.lock
INSTALL := $(PIP) --editable

.PHONY: help setup ready run-and-fables demo demo-chat serve lessons slides test suite test-core test-fast everywhere oracles bench soak gpu site lint clean
.DEFAULT_GOAL := help

help:            ## show this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: .*## /\t/' | expand -t 12

setup: $(VENV)/.run ## make .venv and install Pellucid with the locked versions

# On two cores: the demo's fables are written while the large packages are installed.
ready:
	@$(MAKE) --no-print-directory -j2 run-and-fables
run-and-fables: $(VENV)/.run $(VENV)/.fables
	@:

# Of training: a slow machine makes as many updates as fit. make demo MINUTES=3
MINUTES := 4.75

demo: ready      ## train on fables for five minutes at most, then write stories
	$(BIN)/pellucid train configs/fables.yaml --resume --minutes $(MINUTES)
	$(BIN)/pellucid evaluate checkpoints/fables
	$(BIN)/pellucid generate checkpoints/fables --num-samples 3 --seed 1

demo-chat: demo  ## teach the demo to do as it is told (SFT, then GRPO): ten minutes more
	$(BIN)/pellucid train configs/instructions_sft.yaml --resume
	$(BIN)/pellucid train configs/instructions_grpo.yaml --resume
	$(BIN)/python scripts/measure.py chat checkpoints/fables --report checkpoints
	$(BIN)/pellucid chat checkpoints/instructions_grpo --seed 1 --prompt "Tell me a story about a fox in which someone shares."

serve: ready     ## the page of the demo; trains it first if need be, while the page is open: Ctrl-C ends both
	$(BIN)/pellucid serve checkpoints/fables --train configs/fables.yaml --open

lessons: $(VENV)/.dev ## run all of the lessons: every block, solution, stub and mistake
	$(PYTEST) tests/lessons tests/course --lessons-in-full

slides: $(VENV)/.slides ## slides of the lessons, in slides/: a file for each, which a browser opens without a network
	$(BIN)/python scripts/make_slides.py

test: $(VENV)/.dev ## lint, types and layers, beside all tests
	$(MAKE) -j2 lint suite

suite: $(VENV)/.dev
	$(PYTEST)

# The rooms of the decoder, whose tests are in folders of the same names; those of FAST first; and what is built around.
FAST := checkpoint config data evaluation kernels model objectives runtime tokenizer
CORE := $(FAST) adapters corpora cost generation languages training
AROUND := api.py course experiments exchange inspection post_training web

test-fast: $(VENV)/.dev ## before each commit: what defends most in a minute, such as all of the mathematics
	$(PYTEST) $(FAST:%=tests/%) tests/test_plain.py tests/test_house.py

test-core: $(VENV)/.dev ## the decoder stands alone: a copy without the rooms around it passes its tests, in two minutes
	rm -rf .core && mkdir -p .core/docs
	cp -r src tests configs pyproject.toml .core && cp docs/*.md .core/docs
	cd .core && rm -rf $(AROUND:%=src/pellucid/%) $(AROUND:%=tests/%) tests/lessons
	cd .core && PYTHONPATH="$(CURDIR)/.core/src" $(PYTEST) $(CORE:%=tests/%)

everywhere: $(VENV)/.dev ## all tests with other kernels, threads and orders, and beside a busy process: an hour or two
	$(BIN)/python scripts/everywhere.py

oracles: $(VENV)/.oracles ## what other programs make of our files: trackers, evaluation harness and formats
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest tests/oracles

# Other programs that are not here are left out: `make oracles` installs llama.cpp, and NANOGPT names a clone of nanoGPT.
bench: $(VENV)/.dev ## speed, memory and start-up beside other programs and the limits of the machine: make bench NANOGPT=../nanoGPT
	$(BIN)/python scripts/measure.py others $(if $(NANOGPT),--nanogpt $(NANOGPT))
	$(BIN)/python scripts/measure.py benchmark

soak: $(VENV)/.dev ## the faults of docs/reliability.md in their long form, as a table, and all of the model's axes: an hour
	$(BIN)/pytest -o faulthandler_timeout=0 tests/faults tests/distributed tests/model/test_decoder.py tests/generation tests/cost tests/languages/fables \
	    tests/experiments/test_shipped_experiments.py tests/exchange/test_random_exports.py \
	    tests/web/test_serve.py --soak

# Nothing is installed but the wheels in the folder WHEELS, if it is named: such a machine may have no network.
gpu:             ## tests and measurements that need an NVIDIA GPU, with the packages of $(PYTHON): ten minutes
	$(if $(WHEELS),$(PYTHON) -m pip install --quiet --no-index --no-deps --upgrade --target .gpu-packages $(WHEELS)/*.whl)
	@PYTHONPATH=$(CURDIR)/src:$(CURDIR)/.gpu-packages:$$PYTHONPATH $(PYTHON) scripts/gpu.py --to "$${OUT:-gpu}" $(GPU)

site: $(VENV)/.site ## the documentation as a site of its own, in site/: open site/index.html; a browser checks every page
	$(BIN)/mkdocs build --quiet --config-file scripts/site.yml
	$(BIN)/pytest tests/test_site.py

lint: $(VENV)/.dev ## ruff, mypy and the layers of the house; eslint and prettier where node is
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	sh scripts/javascript/lint.sh

# Runtime packages alone, so that the demo starts sooner; the tests add theirs. `pellucid prepare` needs these few of them.
TO_PREPARE := numpy tokenizers pydantic pyyaml filelock safetensors tqdm typer typing-extensions

$(VENV)/.prepare: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TO_PREPARE)
	touch $@

$(VENV)/.fables: $(VENV)/.prepare
	PYTHONPATH=src $(BIN)/python -m pellucid prepare configs/fables.yaml
	touch $@

$(VENV)/.run: $(VENV)/.prepare
	$(INSTALL) .
	touch $@

$(VENV)/.slides: $(VENV)/.run
	$(INSTALL) '.[slides]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(INSTALL) '.[dev]'
	sh scripts/install_chromium.sh
	touch $@

$(VENV)/.site: $(VENV)/.dev
	$(INSTALL) '.[dev,site]'
	touch $@

$(VENV)/.oracles: $(VENV)/.dev
	$(INSTALL) '.[dev,oracles]'
	touch $@

clean:           ## remove .venv, caches, and the corpora and runs that Pellucid wrote; your own files stay
	$(PYTHON) scripts/clean.py
	rm -rf $(VENV) scripts/javascript/node_modules site slides .core .everywhere .gpu-packages .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
