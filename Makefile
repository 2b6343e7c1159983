# Everything a person or a CI does here. `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# What a caller may set: make demo PORT=9000, make test ARGS="tests/kcover -x"
PORT ?= 8000
SIM_PORT ?= 8001
DEMO_NODES ?= 200
WORKERS ?= 4
ARGS ?=
PYTHON ?=

BIN := .venv/bin
SOURCES := kcover agents kcover_portal simulator tests tools $(wildcard bench) manage.py
PIP_INSTALL := $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --require-hashes
SERVERS := $(BIN)/python -m tests.servers

export PORT DEMO_NODES
# The tests start hundreds of processes. Without bytecode on disk each of them compiles Django anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  Variables: PORT (8000) for demo and serve; SIM_PORT (8001) and DEMO_NODES (200) for demo; ARGS for unit, test, bench, crash, outages;'
	@echo '             WORKERS (4; 0: one process) for test; PYTHON, the interpreter that makes .venv'


# ------------------------------------------------------------------------------------------------------------- running
.PHONY: demo serve
demo: .venv/.stamp ## the portal and a simulated GPU cluster beside it; no root, nothing else to install
	@echo '== preparing the pages'
	$(BIN)/python manage.py static_files --verbosity 0
	KCOVER_DATABASE_URL=sqlite:///var/demo/kcover.sqlite3 KCOVER_DEMO_URL=http://127.0.0.1:$(SIM_PORT) \
		$(BIN)/python manage.py standalone --demo

serve: .venv/.stamp ## all production processes on this machine, behind one port
	$(BIN)/python manage.py static_files --verbosity 0
	$(BIN)/python manage.py serve


# ------------------------------------------------------------------------------------------------------------- testing
.PHONY: unit test dates verify pictures crash outages bench soak mutants fuzz packages
unit: .venv/.stamp-dev ## the core's and the agent's tests, within a minute: no Django, no servers, nothing to install
	$(BIN)/python -m pytest -o DJANGO_SETTINGS_MODULE= --hypothesis-profile=unit -m "not slow" tests/kcover tests/agents $(ARGS)

# NEEDS: of postgres, redis, chromium, gettext and prometheus what the chosen tests need; empty for crash and bench: everything.
test: NEEDS = python $(shell python3 -m tests.needs $(ARGS))
test: packages .venv/.stamp-dev ## the whole suite, on a PostgreSQL and a Redis of its own (ARGS="tests/kcover -x" for some)
	@echo '== on free ports: $(or $(filter postgres redis,$(NEEDS)),no servers); then pytest on $(WORKERS) workers'
	$(SERVERS) --start "$(filter postgres redis,$(NEEDS))" -- $(BIN)/python -m pytest -p tests.isolation -p tests.repeat_red -rfE \
	  -n $(WORKERS) --no-loadscope-reorder $(or $(ARGS),-p tests.cost)

# In 40 days certificates and sessions have ended, in 400 a year has; on a leap day two minutes before midnight both days occur.
DATES ?= +40d +400d 2028-02-29T23:58
dates: packages .venv/.stamp-dev ## the suite at other times: in 40 and in 400 days, and on a leap day (DATES=+7d for one, ARGS for some)
	@failed=; for date in $(DATES); do \
	  TEST_CLOCK=$$date $(SERVERS) -- $(BIN)/python -m pytest -p tests.isolation -p tests.moved_clock -n $(WORKERS) --no-loadscope-reorder $(ARGS) \
	    || failed="$$failed $$date"; \
	done; [ -z "$$failed" ] || { echo "red at:$$failed"; exit 1; }

verify: packages .venv/.stamp-dev ## all that is too long for the gate, and a summary (ARGS="walk dates" for some parts)
	@$(BIN)/python tools/verify.py $(ARGS)

pictures: NEEDS = python chromium
pictures: packages .venv/.stamp-dev ## every page of the console in light, dark, on a phone and in Chinese, to var/pictures
	TEST_PICTURES=$(CURDIR)/var/pictures $(BIN)/python -m pytest -p tests.isolation tests/browser/test_pictures.py $(ARGS)
	@echo '== $(CURDIR)/var/pictures'

crash: packages .venv/.stamp-dev ## every step hit by every failure, written to docs/reliability.md (ARGS="killed cut" for some)
	@echo '== the crash matrix on durable servers of its own; a quarter of an hour'
	$(BIN)/python -m tests.crash $(ARGS)

outages: packages .venv/.stamp-dev ## two of every process heal 1,000 nodes while each of them, and each server, fails in turn (ARGS="--nodes 24 --faults 4")
	@echo '== on durable servers of its own; a quarter of an hour'
	$(BIN)/python -m tests.crash.outages $(ARGS)

bench: packages .venv/.stamp-dev ## the measurements, written to bench/RESULTS.md (ARGS="nodes-at-once --scale 0.1" to try one)
	@echo '== durable PostgreSQL and Redis on free ports, then the measurements'
	$(SERVERS) --durable -- $(BIN)/python -m bench $(ARGS)

soak: .venv/.stamp-dev ## a random walk over the engine, 1,000,000 steps; continues where it stopped (ARGS="--steps 5000")
	$(BIN)/python -m bench.soak $(ARGS)

mutants: .venv/.stamp-dev ## changes to the core that its tests miss, by mutmut; continues where it stopped (ARGS="kcover.values.durations*")
	$(BIN)/python tools/mutants.py --workers 2 $(ARGS)

fuzz: .venv/.stamp-dev ## random input for every parser, guided by coverage; installs atheris (ARGS="policy --seconds 3600" for one)
	@$(PIP_INSTALL) -r tools/fuzz.lock
	$(BIN)/python tools/fuzz.py $(ARGS)

packages:
	@tools/system_packages.sh $(NEEDS)


# ------------------------------------------------------------------------------------------------------------ checking
.PHONY: bytecode
bytecode: .venv/.stamp-dev ## compiles what tests import, once; otherwise each worker of `make test` does in a fresh clone
	$(BIN)/python -m pytest --collect-only -q >/dev/null

CHECKS := check-format check-lint check-types check-imports check-templates check-vendor check-migrations check-deploy check-security
.PHONY: check format $(CHECKS)
check: $(CHECKS) ## format, lint, types, import contracts, templates, vendored files, migrations, deployment, security

# As in production, so that `check --deploy` judges the settings that matter. Nothing is connected to.
$(CHECKS): export KCOVER_SECRET_KEY := check-only-VXeXkQJ3v0mTz8rL5sWnYb7cDfGhKpQa2u4E6wJ9xMd3
$(CHECKS): export KCOVER_PUBLIC_URL := https://portal.example.com
$(CHECKS): export KCOVER_ALLOWED_HOSTS := portal.example.com
$(CHECKS): export KCOVER_REDIS_URL := redis://127.0.0.1:6379/0
$(CHECKS): export KCOVER_DATABASE_URL := sqlite:///var/check.sqlite3
$(CHECKS): export KCOVER_SIGNING_KEY := var/check_signing_key.pem
$(CHECKS): .venv/.stamp-dev

check-format:
	$(BIN)/ruff format --check $(SOURCES)

check-lint:
	$(BIN)/ruff check $(SOURCES)

check-types:
	$(BIN)/mypy

check-imports:
	$(BIN)/lint-imports

check-templates:
	$(BIN)/djlint templates --check
	$(BIN)/djlint templates --lint

check-vendor:
	$(BIN)/python tools/vendor_frontend.py --verify
	$(BIN)/python tools/trim_css.py --verify

.PHONY: styles
styles: .venv/.stamp-dev ## the part of Tabler's stylesheet that the pages use, after a class was added to one
	$(BIN)/python tools/trim_css.py

check-migrations:
	$(BIN)/python manage.py makemigrations --check --dry-run

check-deploy:
	[ -f $(KCOVER_SIGNING_KEY) ] || $(BIN)/python manage.py ledger key >/dev/null
	$(BIN)/python manage.py check --deploy --fail-level WARNING

check-security:
	$(BIN)/bandit -q -c pyproject.toml -r kcover agents kcover_portal simulator tools manage.py 2> >(grep -v 'nosec encountered' >&2) # those concern its other visits of a line

format: .venv/.stamp-dev ## rewrites Python files and templates in the house's format
	$(BIN)/ruff check --fix --exit-zero --quiet $(SOURCES)
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/djlint templates --reformat --quiet || true

.PHONY: manifests
manifests: .venv/.stamp-dev ## the chart's schema and the plain manifests in deploy/, from deploy/chart and the code
	$(BIN)/python -m tools.chart

.PHONY: messages
PO := locale/zh_Hans/LC_MESSAGES/django.po
FAULT_TEXTS := kcover/faults/collected_texts.py # these two exist only while their texts are collected
API_TEXTS := kcover_portal/api/collected_texts.py
messages: .venv/.stamp-dev ## collects the sentences into the Chinese catalog and compiles it; needs Debian's gettext
	tools/system_packages.sh gettext
	trap 'rm -f $(FAULT_TEXTS) $(API_TEXTS)' EXIT; $(BIN)/python tools/fault_texts.py >$(FAULT_TEXTS) && \
	  $(BIN)/python tools/api_texts.py >$(API_TEXTS) && \
	  $(BIN)/python manage.py makemessages -l zh_Hans --no-location --no-obsolete --no-wrap --ignore 'tests/*' --ignore '.venv/*'
	sed -i '/^"POT-Creation-Date/d; /^"Report-Msgid-Bugs-To/d' $(PO)
	cd locale/zh_Hans/LC_MESSAGES && msgfmt --check -o django.mo django.po


# ---------------------------------------------------------------------------------------------------------- installing
.PHONY: venv agent image image-agent image-mx-smi sbom audit lock clean
agent: .venv/.stamp-agent ## the node agent as one file, dist/kcover-agent.pyz; needs nothing but Python 3.11
	@$(BIN)/python tools/agent_zip.py

# By docker, or by buildah where no docker daemon answers. ARGS are options of both, such as --build-arg LOCK=...
REGISTRY ?= registry.example.com
TAG ?= 1.0.0
BASE ?=
MX_SMI_IMAGE ?=
image: ## the portal's image, REGISTRY/kcover-portal:TAG (REGISTRY, TAG, BASE)
	tools/image.sh deploy/portal/Dockerfile $(REGISTRY)/kcover-portal:$(TAG) $(if $(BASE),--build-arg BASE=$(BASE)) $(ARGS)

image-agent: agent ## the agent's image, REGISTRY/kcover-agent:TAG (BASE=ubuntu:24.04, MX_SMI_IMAGE for MetaX)
	tools/image.sh deploy/agent/Dockerfile $(REGISTRY)/kcover-agent:$(TAG) $(if $(BASE),--build-arg BASE=$(BASE)) \
	  $(if $(MX_SMI_IMAGE),--build-arg MX_SMI_IMAGE=$(MX_SMI_IMAGE)) $(ARGS)

image-mx-smi: ## MetaX's mx-smi for that image, REGISTRY/mx-smi:TAG, from MetaX's own image
	tools/image.sh deploy/mx-smi/Dockerfile $(REGISTRY)/mx-smi:$(TAG) $(if $(BASE),--build-arg BASE=$(BASE)) $(ARGS)

sbom: .venv/.stamp-dev ## the bill of materials of the portal's image, dist/kcover-portal.cdx.json (CycloneDX)
	@$(BIN)/python -m tools.sbom

# --strict: a package that the service does not know is an error, and not skipped.
audit: .venv/.stamp-dev ## known vulnerabilities of what the locks pin; asks PyPI (ARGS="-s osv" asks OSV)
	@$(BIN)/python -m uv tool run pip-audit==2.10.1 --strict --disable-pip --require-hashes -r requirements-extras.lock $(ARGS)

venv: .venv/.stamp-dev ## .venv with everything to run, test and check

.venv/.stamp-agent: requirements-agent.lock
	@[ -x $(BIN)/python ] || tools/make_venv.sh .venv $(PYTHON)
	@$(PIP_INSTALL) -r requirements-agent.lock
	@touch $@

.venv/.stamp: requirements.lock
	@[ -x $(BIN)/python ] || tools/make_venv.sh .venv $(PYTHON)
	@echo '== installing what the portal needs into .venv'
	@$(PIP_INSTALL) -r requirements.lock
	@touch $@

.venv/.stamp-dev: requirements-dev.lock .venv/.stamp
	@echo '== installing what tests and checks need into .venv'
	@$(PIP_INSTALL) -r requirements-dev.lock
	@touch $@

UV_COMPILE := $(BIN)/python -m uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate --no-header
lock: .venv/.stamp-dev ## all locks with hashes, after a requirement changed; keeps the versions that still fit (ARGS=--upgrade)
	@$(UV_COMPILE) requirements-dev.txt -o requirements-dev.lock $(ARGS)
	@$(UV_COMPILE) requirements.txt -c requirements-dev.lock -o requirements.lock
	@$(UV_COMPILE) agents/requirements.txt -c requirements-dev.lock -o requirements-agent.lock
	@$(UV_COMPILE) requirements-extras.txt -c requirements-dev.lock -o requirements-extras.lock

clean: ## removes caches, collected files and the demo's data; keeps .venv
	rm -rf var staticfiles mutants test-results .run .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -f .coverage .coverage.*
	find . -path ./.venv -prune -o -name __pycache__ -type d -print0 | xargs -0r rm -rf
