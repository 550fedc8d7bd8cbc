SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
# uv from the path, or else our own copy in .tools: some systems refuse pip outside of a virtual environment.
UV ?= $(or $(shell command -v uv),.tools/bin/uv)
RUN := .venv/bin

.PHONY: help
help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  \033[1m%-10s\033[0m %s\n", $$1, $$2}'

.tools/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is too old: Python 3.11 or newer is needed (make PYTHON=...)"; exit 1; }
	@echo "Installing uv into .tools"
	@$(PYTHON) -m venv .tools && .tools/bin/pip install --quiet --disable-pip-version-check uv==0.13.9

.venv/installed: pyproject.toml uv.lock bin/spark-python | $(filter .tools/bin/uv,$(UV))
	@echo "Installing the packages of uv.lock into .venv (2 GB); the first time takes a minute or two"
	@$(UV) sync --locked --all-extras
	@touch $@

.PHONY: install
install: .venv/installed ## Install everything, locked, into .venv

.PHONY: demo
demo: install ## Run the whole pipeline on a real broker and show the results
	@exec $(RUN)/lakehouse demo

.PHONY: style
style: install
	@$(RUN)/ruff format --check
	@$(RUN)/ruff check
	@$(RUN)/mypy

.PHONY: docs
docs: install ## Build the docs as a site in docs/_build/html, with warnings as errors
	@$(RUN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build/html

.PHONY: check
check: style docs ## Check style and types, build the docs, and run the tests that start nothing (half a minute)
	@exec $(RUN)/pytest -m "not spark and not broker and not airflow"

.PHONY: test-spark
test-spark: install ## Run the tests that start Spark, but no broker and no Airflow
	@exec $(RUN)/pytest -m "spark and not broker and not airflow"

.PHONY: test
test: style docs ## Check style and types, build the docs, and run the tests (45 minutes)
	@exec $(RUN)/pytest

.PHONY: test-long
test-long: install ## Run the long tests: Airflow, demos, chaos, tenants, crashes
	@exec $(RUN)/pytest -m "(long or airflow) and not s3"

.PHONY: test-store
test-store: install ## Run most commands, kill runs, and fail requests, with tables in an object store (half an hour)
	@exec $(RUN)/pytest -n 0 -m "s3 and not cluster"

.PHONY: test-cluster
test-cluster: install ## Kill executors and workers of a Spark cluster, and run the wheel on one (10 minutes)
	@exec $(RUN)/pytest -n 0 -m cluster

.PHONY: test-brokers
test-brokers: install ## Kill brokers and bookies of a Pulsar cluster while messages land (15 minutes)
	@exec $(RUN)/pytest -n 0 -m brokers

.PHONY: test-cdc
test-cdc: install ## Replicate a Postgres by Debezium, in each form that it has in Pulsar (10 minutes)
	@exec $(RUN)/pytest -n 0 -m cdc

.PHONY: airflow
airflow: install ## Start the broker and Airflow, which runs the pipeline every few minutes
	@$(RUN)/lakehouse up
	@$(RUN)/lakehouse topics create
	@$(RUN)/lakehouse airflow up

.PHONY: bench
bench: install ## Run all benchmarks (two hours)
	@set -e; for each in land merge replicate release correct rebuild publish refresh pipeline small freshness airflow quality cluster backpressure; do \
		$(RUN)/python -m benchmarks $$each; done

.PHONY: chaos
chaos: install ## Inject faults into a running pipeline, and check its tables each time; SEED=1 FAULTS=200 (three hours)
	@$(RUN)/python -m tests.chaos --seed $(or $(SEED),1) --faults $(or $(FAULTS),200)

.PHONY: failing-writes
failing-writes: install ## Let system calls that write fail in each step, and check its tables; SEED=1 TIMES=300 (hours)
	@$(RUN)/python -m tests.failing_writes --seed $(or $(SEED),1) --times $(or $(TIMES),300) --commands 20

.PHONY: model
model: install ## Explore all states of the model of leases, commits and the lent Spark (minutes, 1 GB)
	@$(RUN)/python -m tests.model

.PHONY: failing-network
failing-network: install ## Let the network fail and heal, and check the tables each time; SEED=1 MINUTES=30
	@$(RUN)/python -m tests.network --seed $(or $(SEED),1) --minutes $(or $(MINUTES),30)

.PHONY: power-cuts
power-cuts: install ## Lose the power in each step, and check its tables; SEED=1 TIMES=100 (hours)
	@$(RUN)/python -m tests.failing_writes --power-cuts --seed $(or $(SEED),1) --times $(or $(TIMES),100)
	@$(RUN)/python -m tests.failing_writes --power-cuts --by-spark --seed $(or $(SEED),1) --times $(or $(TIMES),100)

.PHONY: flipped-bits
flipped-bits: install ## Flip bits in files of tables, and count who notices; SEED=1 BITS=240 (10 minutes)
	@$(RUN)/python -m tests.damage --seed $(or $(SEED),1) --bits $(or $(BITS),240)

.PHONY: pictures
pictures: install ## Take the screenshots of Airflow and the page in docs/images again (10 minutes)
	@PICTURES=docs/images $(RUN)/pytest -n 0 -m airflow tests/dags/test_runs.py

.PHONY: build
build: $(filter .tools/bin/uv,$(UV)) ## Build the wheel and the source distribution of the commit, twice, and compare them
	@set -eo pipefail; export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); for out in dist dist/again; do \
		folder=$$(mktemp -d); git archive HEAD | tar -x -C $$folder; rm -f $$out/*.whl $$out/*.tar.gz; \
		$(UV) build --quiet --out-dir $$out $$folder; rm -r $$folder; done
	@cd dist && sha256sum *.whl *.tar.gz | tee again/SHA256SUMS && cd again && sha256sum --check --quiet SHA256SUMS

.PHONY: sbom
sbom: install ## Write what is installed and downloaded into dist/sbom.cdx.json, in CycloneDX
	@mkdir -p dist
	@$(RUN)/python docs/sbom.py $(UV) > dist/sbom.cdx.json

.PHONY: audit
audit: install ## Ask OSV for known vulnerabilities of the locked packages; needs api.osv.dev
	@$(UV) audit --locked

.PHONY: format
format: install ## Format the code, and fix what ruff can fix
	@$(RUN)/ruff format
	@$(RUN)/ruff check --fix

.PHONY: clean
clean: ## Remove tables, checkpoints, and the data of the embedded broker and of Airflow
	@[ ! -x $(RUN)/lakehouse ] || { $(RUN)/lakehouse airflow down && $(RUN)/lakehouse down; }
	@rm -rf .lakehouse
