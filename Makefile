# Everything starts here; a machine needs Python 3.11, make and a shell.
SHELL := /bin/sh
PYTHON := .venv/bin/python
STAMP := .venv/.setup-stamp
SERVERS := prometheus chromium
UNMARKED := not prometheus and not slurm and not kubernetes and not postgres and not browser and not slow

.PHONY: help setup servers demo test check bench golden lock screenshots clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 14

setup: $(STAMP) ## make .venv with everything that requirements.lock names

$(STAMP): pyproject.toml requirements.lock
	@command -v python3.11 >/dev/null || { echo "Trimtab needs python3.11 on PATH" >&2; exit 1; }
	@echo "setup 1/3: making .venv"
	@test -x $(PYTHON) || python3.11 -m venv .venv
	@echo "setup 2/3: installing uv into it"
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.9"
	@echo "setup 3/3: installing $$(grep -c '^[a-z]' requirements.lock) locked packages and trimtab itself"
	@.venv/bin/uv pip sync --python $(PYTHON) --require-hashes requirements.lock
	@.venv/bin/uv pip install --python $(PYTHON) --quiet --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

servers: ## install the servers that the tests start (Debian, as root)
	@missing=""; for name in $(SERVERS); do command -v $$name >/dev/null || missing="$$missing $$name"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "servers: installing$$missing (the tests start them on loopback)"; \
	  apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -q -y --no-install-recommends $$missing fonts-dejavu-core >/dev/null; \
	else echo "servers: missing$$missing; install them as root: apt-get install$$missing" >&2; fi

demo: setup ## a simulated fleet, a full cycle, then the dashboard on 127.0.0.1:8501
	@.venv/bin/trimtab demo

test: setup servers ## every test, real servers included
	@$(PYTHON) -m pytest

check: setup ## format, lint, types, imports, docs and the tests that need no server
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(PYTHON) -m pytest -q -m "$(UNMARKED)"

bench: setup ## the benchmarks, small
	@for module in $$(cd benchmarks && ls [a-z]*.py | sed 's/\.py$$//'); do $(PYTHON) -m benchmarks.$$module || exit 1; done

golden: setup ## write the golden files anew; read the diff
	@TRIMTAB_GOLDEN=1 $(PYTHON) -m pytest -q tests/dashboard/test_golden.py

lock: $(STAMP) ## resolve requirements.lock anew
	@.venv/bin/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  --python-version 3.11 --extra dev --extra kubernetes --extra postgres pyproject.toml -o requirements.lock

screenshots: setup servers ## take docs/images anew
	@TRIMTAB_SCREENSHOTS=1 $(PYTHON) -m pytest -q -m browser

clean: ## remove what make made
	@rm -rf .venv .trimtab .mypy_cache .ruff_cache .pytest_cache .hypothesis
