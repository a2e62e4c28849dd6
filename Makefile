# Everything starts here; a machine needs Python 3.11 (to 3.14), make and a POSIX shell.
SHELL := /bin/sh
BIN := .venv/bin
PYTHON := $(BIN)/python
STAMP := .venv/.setup-stamp
DATA := ../shared/data
# One more than the two cores of CI: a third of their time, two workers wait for servers.
WORKERS := 3
# Empty is off. Images often set it, and every process that a test starts would then compile the
# 2,000 modules that a server imports anew: 5 s of 8.
export PYTHONDONTWRITEBYTECODE :=
SCENARIOS := 300
SLURM_ROOT ?= /var/cache/trimtab-slurm
# What the site holds: the pages, and the files that they link to.
PAGES := '*.md' ':!tests/*.md' ':!.github' LICENSE docs deploy tests/attack.toml tests/faults.toml tests/outsiders/campaigns.toml
UNMARKED := not slow_end and not prometheus and not slurm and not kubernetes and not postgres and not browser and not slow

.DEFAULT_GOAL := help
.PHONY: help setup servers demo test test-all lint check check-all bench bench-full mutants golden lock docs sbom release release-check reliability screenshots clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

setup: $(STAMP) ## make .venv with everything that requirements.lock names; instant when unchanged

$(STAMP): pyproject.toml requirements.lock deploy/installers.lock
	@set -eu; \
	python=; \
	for candidate in python3.11 python3 python3.12 python3.13 python3.14; do \
		if $$candidate -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13), (3, 14)))' \
			>/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "setup: no Python 3.11 to 3.14 found as python3.11, python3, python3.12, python3.13 or python3.14." >&2; \
		echo "       Install one with its venv module (Debian: apt-get install python3.11-venv)." >&2; \
		exit 1; \
	fi; \
	echo "setup 1/4: .venv with $$($$python --version)"; \
	if [ ! -x $(PYTHON) ] || [ ! -x $(BIN)/pip ]; then \
		$$python -m venv --clear .venv || { \
			echo "setup: $$python cannot make a virtual environment; see the lines above." >&2; \
			exit 1; }; \
	fi; \
	echo "setup 2/4: pip and uv into it, each checked by hash"; \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
		--requirement deploy/installers.lock; \
	echo "setup 3/4: $$(grep -c '^[a-z]' requirements.lock) locked packages, each checked by hash"; \
	$(BIN)/uv pip sync --python $(PYTHON) --require-hashes requirements.lock; \
	echo "setup 4/4: trimtab itself, in place"; \
	$(BIN)/uv pip install --python $(PYTHON) --quiet --no-deps --no-build-isolation --editable .; \
	touch $(STAMP); \
	echo "setup: done; $(BIN)/trimtab --help lists the commands"

servers: ## install the servers that the tests start (Debian, as root; else says what is missing)
	@.ci/servers
	@.ci/kubernetes

demo: setup ## a simulated fleet, a full cycle, then the dashboard on 127.0.0.1:8501
	@$(BIN)/trimtab demo

test: setup servers ## every behaviour, real servers and browser included
	@$(PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow_end"

test-all: test ## `make test`, then its slow end: other times, fresh draws, 300 scenarios, Slurm 24.11, 1,000 kills, load
	@$(PYTHON) tests/other_times.py -- -n $(WORKERS)
	@$(PYTHON) -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "hypothesis or slow_end" \
		--hypothesis-profile=drawn
	@TRIMTAB_SCENARIOS=$(SCENARIOS) $(PYTHON) -m pytest -q -rP -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
		--timeout=14400 tests/outsiders
	@.ci/slurm $(SLURM_ROOT)
	@TRIMTAB_SLURM_ROOT=$(SLURM_ROOT) $(PYTHON) -m pytest -q -n $(WORKERS) --dist loadfile -m slurm --timeout=1800 \
		tests/dashboard/apply tests/collectors
	@TRIMTAB_KILL_ROUNDS=50 TRIMTAB_LOAD_ROUNDS=60 $(PYTHON) -m pytest -q --timeout=7200 \
		tests/dashboard/test_random_kills.py tests/dashboard/test_sustained_load.py

lint: setup ## format, lint, types and imports
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

check: lint ## that, docs and the 30 files of tests nearest to what changed: 2 to 3 min the first time, then up to 90 s
	@near=$$($(PYTHON) tests/nearest.py) && $(PYTHON) -m pytest -q -n auto -m "$(UNMARKED)" $$near

check-all: lint ## that, and every test that needs no server
	@$(PYTHON) -m pytest -q -n auto -m "$(UNMARKED)"

bench: setup ## the benchmarks, beside their peers; minutes
	@$(BIN)/uv pip install --python $(PYTHON) --quiet --require-hashes --only-binary :all: \
		--requirement benchmarks/peers.lock || { \
		echo "bench: a peer has no wheel for this Python: run it under 3.11 or 3.12" >&2; exit 1; }
	@set -eu; for file in $$(grep -l '^def main' benchmarks/*.py); do \
		name=$$(basename "$$file" .py); echo "bench: $$name"; \
		$(PYTHON) -m "benchmarks.$$name" --data "$(DATA)" $(FULL); \
	done

bench-full: ## the benchmarks at full size and 10^5 fuzzed answers; an hour or two
	@$(MAKE) bench FULL=--full

mutants: setup ## seeded mutants of core logic against their nearest tests; hours, goes on where it stopped
	@nice -n 10 $(PYTHON) tests/mutants/run.py $(MUTANTS)

golden: setup ## write the golden files anew; read the diff
	@TRIMTAB_GOLDEN=1 $(PYTHON) -m pytest -q -k golden

lock: setup ## bring the locks in line with pyproject.toml; UPGRADE=--upgrade takes newer releases
	@set -eu; bare="$(BIN)/uv pip compile --quiet $(UPGRADE) --generate-hashes --python-version 3.11 \
		--no-emit-index-url --no-emit-find-links --no-annotate --no-header"; \
	printf 'pip\nuv\n' | $$bare --output-file deploy/installers.lock -; \
	compile="$$bare pyproject.toml"; \
	$$compile --extra dev --extra auth --extra kubernetes --extra mcp --extra mutants --extra pages --extra postgres --extra prophet --extra ray --extra docs --output-file requirements.lock; \
	$$compile --extra auth --extra kubernetes --extra mcp --extra pages --extra postgres --extra prophet --constraint requirements.lock \
		--output-file deploy/requirements.lock; \
	$$compile --extra pages --extra peers --extra prophet --constraint requirements.lock --output-file benchmarks/peers.lock

docs: setup ## the pages as a site in dist/site, every link checked
	@rm -rf dist/pages; mkdir -p dist/pages
	@git ls-files -z --cached --others --exclude-standard -- $(PAGES) | xargs -0 cp --parents --target-directory dist/pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

sbom: setup ## what requirements.lock brings, as CycloneDX JSON in dist/sbom.cdx.json
	@mkdir -p dist
	@$(PYTHON) deploy/sbom.py requirements.lock > dist/sbom.cdx.json

release: setup ## source, wheel, chart, bill of materials and checksums in dist/release; a tag: TAG=v1.2.3
	@$(PYTHON) deploy/release.py build $(TAG:%=--tag %) $(REPOSITORY:%=--repository %)

release-check: release ## that, then installed into a bare environment outside, and run there; 4 to 5 min
	@$(PYTHON) -m pytest -q -n 2 --dist loadfile --timeout=900 tests/test_release.py tests/test_released_files.py

reliability: setup servers ## run the tests of every fault and write docs/reliability.md
	@TRIMTAB_RELIABILITY=1 $(PYTHON) -m pytest

screenshots: setup servers ## take docs/images anew, and sheets of every page into dist/pages to look at
	@TRIMTAB_SCREENSHOTS=1 DATA="$(DATA)" $(PYTHON) -m pytest -q tests/browser/test_pictures.py

clean: ## remove .venv and every cache; the store in the state folder stays
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
