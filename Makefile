# Everything a person or a machine does with this tree. `make` alone lists it.
#
# Needs Python 3.11 or newer and make; all else comes into .venv (scripts/venv.sh). Nothing outside this directory changes.
#   make PYTHON=python3.12 …      another interpreter          make VENV=/tmp/venv …      another environment
#   make test ARGS="-k watermark -x"                           arguments for pytest
#   make test WORKERS=0                                        in one process; else the files of tests go to several
#   HYPOTHESIS_PROFILE=thorough make test ARGS=tests/store     1,000 examples a property (tests/support/properties.py)

.DEFAULT_GOAL := help
SHELL := /bin/sh
VENV ?= .venv
export VENV PYTHON
# Tests start our programs a thousand times, and without kept bytecode each start compiles all of it again.
unexport PYTHONDONTWRITEBYTECODE
PY := $(VENV)/bin/python
INTEROP ?= ../shared/interop
ARGS ?=
WORKERS ?=
PYTEST = $(PY) -m pytest --durations=25 --durations-min=0.1
# Files of tests are divided among workers, long ones first; those of one file share their fixtures.
IN_PARALLEL = --dist loadfile --no-loadscope-reorder -n $(or $(WORKERS),2)
# Four more, because more than half of the time of a long test is spent waiting.
ALL_IN_PARALLEL = --dist loadfile --no-loadscope-reorder -n $(or $(WORKERS),6)
# All that some test or type needs; the same for both, so that both see the same.
EVERYTHING := dev console browser rocketmq5 spark plot lz4 zstd etcd

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: quickstart
quickstart: ## from a clean clone to a produced and consumed message
	@scripts/venv.sh
	@$(PY) examples/quickstart/run.py

.PHONY: test
test: everything ## the whole test suite (the first time after 2 minutes of installing, PySpark among it)
	@$(PYTEST) $(ALL_IN_PARALLEL) $(ARGS)

.PHONY: quick
quick: ## the tests that start no process, with few examples: half a minute
	@scripts/venv.sh dev
	@HYPOTHESIS_PROFILE=quick $(PYTEST) $(IN_PARALLEL) --ignore=tests/spark_jobs \
		-m "not process and not slow and not spark and not interop" $(ARGS)

.PHONY: fast
fast: ## all tests but the slow ones, Spark's and Java's: a minute
	@scripts/venv.sh dev
	@$(PYTEST) $(IN_PARALLEL) --ignore=tests/spark_jobs -m "not slow and not spark and not interop" $(ARGS)

.PHONY: format
format: ## formats the code in place
	@scripts/venv.sh dev
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

.PHONY: lint formatted linted typed
lint: formatted linted typed ## format, lint and types, without changing anything
formatted linted typed: | everything
formatted:
	$(PY) -m ruff format --check .
linted:
	$(PY) -m ruff check .
typed:
	$(PY) -m mypy

.PHONY: everything
everything:
	@scripts/venv.sh $(EVERYTHING)

.PHONY: check
check: lint test ## format, lint, types and tests: what must pass before a commit

.PHONY: docs
docs: ## writes the generated pages of docs/ and builds the site into site/
	@scripts/venv.sh dev docs
	@$(PY) -m rocketlet.tools.settings_table
	@$(PY) -m rocketlet.tools.compatibility_table
	@$(PY) -m mkdocs build --strict --quiet
	@echo "site/index.html"

.PHONY: stubs
stubs: ## writes the types of the gRPC messages again, after a change of their table
	@scripts/venv.sh dev
	@$(PY) scripts/grpc_stubs.py

.PHONY: bench
bench: ## the benchmarks (benchmarks/README.md)
	@scripts/venv.sh dev
	@$(PY) -m benchmarks $(ARGS)

.PHONY: interop
interop: ## official Java clients against us and ours against Java; needs Java, Maven and INTEROP=directory
	@scripts/venv.sh dev
	@INTEROP="$(INTEROP)" $(PY) -m pytest -m interop $(ARGS)

.PHONY: ci
ci: ## what continuous integration runs
	@.ci/run

.PHONY: clean
clean: ## removes what was built and cached, but not .venv
	@rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log *.egg-info
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print | xargs rm -rf

.PHONY: distclean
distclean: clean ## removes .venv too
	@rm -rf $(VENV)
