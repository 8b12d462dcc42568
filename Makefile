# Two commands on a fresh machine: `make demo` and `make test`. Each does all its own set-up.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1
EXTRAS := $(foreach extra,pld server oidc postgres adbc solvers vault plots agents,--extra $(extra))

.PHONY: demo test test-slow test-pythons test-ml test-flower mutate bench lint docs lock clean
.DEFAULT_GOAL := test
unexport PYTHONDONTWRITEBYTECODE  # hundreds of commands are started: compiled once, they start sooner

$(VENV)/.ready: requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "deniable needs Python 3.11 or newer; say make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@if command -v java > /dev/null; then $(BIN)/python -m pip install --quiet --no-deps --requirement requirements-spark.lock; fi
	@touch $@

demo: $(VENV)/.ready  ## tell the story of one town, writing to demo-output/
	$(BIN)/deniable demo --out demo-output

lint: $(VENV)/.ready  ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(VENV)/.ready  ## everything that must hold; style and types are checked beside
	@$(MAKE) --no-print-directory lint > .lint.log 2>&1 & lint=$$!; \
	$(BIN)/python -m pytest -n 4 --dist loadfile -m "not slow"; tests=$$?; \
	wait $$lint; lint=$$?; cat .lint.log; rm -f .lint.log; exit $$((tests + lint))

test-slow: $(VENV)/.ready  ## the long statistical and load runs
	$(BIN)/python -m pytest -n 2 -m slow

test-ml: .venvs/ml/.ready  ## modules of torch with Opacus, in an environment of their own
	.venvs/ml/bin/python -m pytest tests/unit/test_learn_torch.py tests/audits/test_learn_audits.py tests/docs/test_pages_run.py -k "torch or train-a-model"

.venvs/ml/.ready: requirements-dev.lock requirements-ml.lock pyproject.toml
	$(PYTHON) -m venv .venvs/ml
	.venvs/ml/bin/python -m pip install --quiet --requirement requirements-dev.lock
	.venvs/ml/bin/python -m pip install --quiet --requirement requirements-ml.lock  # torch wants an older mpmath than the first has
	.venvs/ml/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

test-flower: .venvs/flower/.ready  ## the app of examples/flower in Flower's simulation, in an environment of its own
	.venvs/flower/bin/python -m pytest -n 0 -m slow tests/workflows/test_flower_workflow.py

.venvs/flower/.ready: requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv .venvs/flower
	.venvs/flower/bin/python -m pip install --quiet --requirement requirements-dev.lock
	.venvs/flower/bin/python -m pip install --quiet "flwr[simulation]>=1.20"
	.venvs/flower/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

mutate: $(VENV)/.ready  ## small wrong changes to privacy-critical code, which tests must notice; MUTATE="--help" tells more
	PYTHONPATH=tests $(BIN)/python -m mutation $(MUTATE)

test-pythons: $(VENV)/.ready  ## the built wheel in a bare environment of every Python that is installed: PYTHONS="3.12 3.13", or "--lowest 3.11"
	$(BIN)/python tests/pythons.py $(PYTHONS)

bench: $(VENV)/.ready  ## every figure of docs/benchmarks.md and the README, written there; BENCH="query learn" runs some
	$(BIN)/python bench/run.py $(BENCH)

docs: $(VENV)/.ready .venvs/docs/.ready  ## the reference pages, and the site in site/, which opens from disk
	$(BIN)/python docs/generate.py
	.venvs/docs/bin/zensical build --clean --strict
	$(BIN)/deniable policy schema > site/policy.schema.json

.venvs/docs/.ready: requirements-docs.lock
	$(PYTHON) -m venv .venvs/docs
	.venvs/docs/bin/python -m pip install --quiet --requirement requirements-docs.lock
	@touch $@

lock: $(VENV)/.ready  ## refresh the development lock
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 pyproject.toml $(EXTRAS) --group dev --no-header --output-file requirements-dev.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 pyproject.toml --extra spark --constraints requirements-dev.lock --no-header --no-annotate | grep '^py4j\|^pyspark' > requirements-spark.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 pyproject.toml --extra ml --constraints requirements-dev.lock --no-header --no-annotate | grep '^torch\|^opacus' > requirements-ml.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --group docs --no-header --output-file requirements-docs.lock

clean:
	rm -rf $(VENV) .venvs .lint.log demo-output build dist site .mutation-cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
