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

# Workers, each with the files that it took: what the tests of a file share is made once. In the order of their
# names, since by their number of tests the longest ones, which are few in a file, would come last, and to one worker.
# Five where tests wait for servers, and for processes that they kill.
SIDE_BY_SIDE = --dist loadfile --no-loadscope-reorder --numprocesses

# What runs whole jobs on Spark comes last, where nothing else takes the cores: each worker has a session of its own.
ON_SPARK = tests/runtime/spark tests/test_examples.py tests/test_benchmarks.py

.DEFAULT_GOAL := help
.PHONY: help setup demo tour test soak check bench lock pyfiles clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):  *## /  make \1\t/p' Makefile

setup:  ## .venv and nothing else
	@$(INSIDE)

demo:  ## a job on Spark that is killed and comes back right, in less than a minute
	@$(INSIDE) python examples/orders_demo.py

tour:  ## the rooms of storage and state alone, without Spark
	@$(INSIDE) python examples/storage_tour.py
	@$(INSIDE) python examples/state_tour.py

test:  ## every test
	@$(INSIDE) pytest $(SIDE_BY_SIDE) 3 -m "not slow and not soak"
	@$(INSIDE) pytest $(SIDE_BY_SIDE) 5 -m "slow and not soak" $(addprefix --ignore=,$(ON_SPARK))
	@$(INSIDE) pytest $(SIDE_BY_SIDE) 3 -m "slow and not soak" $(ON_SPARK)

soak:  ## the long searches that no other target runs: for a night
	@$(INSIDE) pytest -m soak

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
