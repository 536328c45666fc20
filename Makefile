# Every target sets up what it needs in .venv on first use. CONTRIBUTING.md says what each is for.
# `make PYTHON=python3.13 test` chooses the interpreter; without it the first of these that is 3.11 or newer serves.
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11
USABLE := import sys, ensurepip, ssl, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for each in $(CANDIDATES); do \
	$$each -c '$(USABLE)' >/dev/null 2>&1 && { echo $$each; break; }; done)
INSIDE = $(if $(PYTHON),$(PYTHON),$(error Holdfast needs Python 3.11 or newer with venv and ensurepip: none of \
	$(CANDIDATES) is one; install it, or name it: make PYTHON=/path/to/python3)) tools/bootstrap.py

# One lock for every Python and system that Holdfast supports; no address of an index gets into it.
COMPILE = env UV_CUSTOM_COMPILE_COMMAND="make lock" uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links $(if $(UPGRADE),--upgrade)

# Every program of a target starts sooner with what Python has compiled before, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo tour test soak check bench lock pyfiles clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):  *## /  make \1\t/p' Makefile
	@echo; echo "  make PYTHON=python3.13 …  chooses the interpreter; CONTRIBUTING.md says more"

setup:  ## .venv and nothing else
	@$(INSIDE)

demo:  ## a job on Spark that is killed and comes back right, in less than a minute
	@$(INSIDE) python examples/orders_demo.py

tour:  ## the rooms of storage and state alone, without Spark
	@$(INSIDE) python examples/storage_tour.py
	@$(INSIDE) python examples/state_tour.py

test:  ## every test, but for those that make check has just run on the same files
	@$(INSIDE) python tools/run_tests.py

# Searches of Hypothesis look at all their examples here, at a tenth of them in other targets.
soak:  ## all that the other targets deal out, and the long searches: for a night
	@$(INSIDE) pytest -m "soak or hypothesis"

check:  ## format, lint, types, imports and the quick tests: before every commit
	@$(INSIDE) python tools/check.py

bench:  ## the benchmarks in full, one JSON line a result
	@$(INSIDE) env PYTHONPATH=tests:tools python -m benchmarks

lock:  ## renew the lock files where pyproject.toml asks for it; UPGRADE=1 takes the newest of everything
	@$(INSIDE) $(COMPILE) --all-extras --output-file requirements-dev.lock pyproject.toml
	@$(INSIDE) $(COMPILE) --group java --output-file requirements-java.lock

pyfiles:  ## dist/holdfast-spark-VERSION-pyfiles.zip for spark-submit --py-files
	@$(INSIDE) python tools/pyfiles.py

# The empty .venv.lock stays: another command may be waiting for it.
clean:  ## remove what the other targets made, .venv too
	rm -rf .venv build dist holdfast_spark.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
