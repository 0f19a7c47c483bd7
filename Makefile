# The daily commands. Each does the set-up it needs by itself; `make help` lists them.
#
# PYTHON=/path/to/python chooses the interpreter of the virtual environment; ARGS="..." is handed on to the command.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
READY := .venv/.ready
ARGS ?=
SCHEDULES ?= 1000
FROM ?= 1
REWRITE ?=
# Of the tests: small, full or long (CONTRIBUTING.md); in how many processes, and what each run says in the end. Half of
# a test's time is a wait for something, so there are more processes than two cores; one more for Spark's, which wait
# longer. Schemathesis is loaded where it is used.
SIZE ?= full
PYTEST = -m pytest --numprocesses $(or $(WORKERS),$(PROCESSES)) --dist loadgroup --no-loadscope-reorder \
	--durations 15 --durations-min 1 -p no:schemathesis

# The longest first; three are made at a time, as each waits for the network, or for a single core.
PARTS = etcd java_classes pythons porcupine kafka_clients kafka spark_kafka hdfs languages chromium image manifests

# Tests and benchmarks run on the checkout, or with COMPILED=1 on what is compiled of it. 0 says no, as in the Dockerfile.
IS_COMPILED = $(filter-out 0,$(COMPILED))
TAKE_PYTHON = python=$(BIN)/python; [ -z "$(IS_COMPILED)" ] || python=$$(scripts/compiled.sh $(BIN)) || exit 1;

# Where Python may keep no bytecode it compiles everything anew in each process, and pytest rewrites every test.
export PYTHONDONTWRITEBYTECODE :=

# Spark takes the Java of JAVA_HOME. Where there is none, scripts/java.sh has said so, and the command goes on without.
JAVA = export JAVA_HOME="$$(scripts/java.sh --install || true)";

PROCESSES = 4
test-all: PROCESSES = 5

.PHONY: help setup demo cluster cluster-faults test parts test-all judges check image sim sim-cluster plants scenarios bench compiled serve docs format constraints etcd-stubs clean

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do printf '  make %-14s %s\n' "$$name" "$$text"; done

setup: $(READY) ## make .venv with everything in it; again only when pyproject.toml or constraints.txt changed
	@:

$(READY): pyproject.toml constraints.txt scripts/setup.sh
	@scripts/setup.sh
	@touch $@

demo: setup ## the main job: a year of flights, divided between two Spark drivers
	@$(JAVA) exec $(BIN)/python -m examples.flights.demo $(ARGS)

cluster: setup ## three nodes on three etcd members under a load: a kill, a pause, a rolling restart, and an audit of etcd
	@exec $(BIN)/python -m examples.cluster $(ARGS)

cluster-faults: setup ## a cluster whose processes, lines, disks and clocks fail; judged by an audit and by porcupine; takes root
	@exec $(BIN)/python -m tests.cluster_faults $(ARGS)

test: setup ## a sample of every rule: no network, and no other program; COMPILED=1 tests the compiled package
	@$(TAKE_PYTHON) exec "$$python" $(PYTEST) $(if $(IS_COMPILED),--compiled) --size small $(ARGS)

parts: setup ## download and build the real parts that test-all runs with: brokers, etcd, other Pythons, more
	@$(JAVA) printf '%s\n' $(PARTS) | xargs -P 3 -I{} $(BIN)/python -m tests.real.{}

test-all: parts ## every test; what this machine lacks is skipped with its reason, never in CI; SIZE=long runs for longer
	@$(TAKE_PYTHON) $(JAVA) exec "$$python" $(PYTEST) $(if $(IS_COMPILED),--compiled) --size $(SIZE) $(ARGS)

judges: setup ## Kafka's own clients in groups of this service, and Kafka's answers beside its own: a table of verdicts
	@[ "$(SIZE)" != small ] || { echo "SIZE=small leaves every judge out; SIZE=full or SIZE=long asks them" >&2; exit 2; }
	@$(JAVA) printf '%s\n' kafka kafka_clients languages | xargs -P 2 -I{} $(BIN)/python -m tests.real.{}; \
		exec $(BIN)/python -m pytest --size $(SIZE) tests/judges $(ARGS)

sim: setup ## the simulation: SEED=n shows one schedule, SCHEDULES=n runs as many, FROM=n begins there
	@exec $(BIN)/python -m tests.simulation \
		$(if $(SEED),--seed $(SEED) --verbose,--from $(FROM) --schedules $(SCHEDULES)) $(ARGS)

sim-cluster: setup ## three nodes over an etcd: SEED=n shows one schedule, SCHEDULES=n runs as many, FROM=n begins there
	@exec $(BIN)/python -m tests.simulation.cluster \
		$(if $(SEED),--seed $(SEED) --verbose,--seed $(FROM) --schedules $(SCHEDULES) --shrink) $(ARGS)

plants: setup ## the simulations must find each fault of the two plants.toml in tests/simulation, tests each of attacks.toml
	@exec $(BIN)/python $(PYTEST) --dist load --size long tests/simulation/plants tests/simulation/cluster/plants tests/attacks $(ARGS)

scenarios: setup ## the stories of tests/scenarios; REWRITE=1 writes what comes of them now into the files, to be read
	@REWRITE="$(REWRITE)" exec $(BIN)/python -m pytest -q tests/scenarios $(ARGS)

check: setup ## format, lint, types, who imports whom; secrets in files; what is installed is what is pinned
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python scripts/find_secrets.py
	@$(BIN)/python scripts/check_pins.py
	@$(BIN)/python -m pip --disable-pip-version-check check

format: setup ## put every file into the form that check asks for
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup ## the benchmarks: machine, date and load stand beside each number; COMPILED=1 measures the compiled package
	@$(TAKE_PYTHON) exec "$$python" -m bench $(ARGS)

compiled: setup ## a wheel for this platform with the hot modules compiled, into dist/: takes a C compiler, and minutes
	@scripts/compiled.sh $(BIN) >/dev/null

serve: setup ## the service on http://127.0.0.1:8000, with its data in rallypoint.db
	@exec $(BIN)/rallypoint serve $(ARGS)

image: ## the image of the Dockerfile, without Docker, into .cache/image/rallypoint.tar; takes root and buildah
	@exec scripts/image/build.sh $(ARGS)

docs: setup ## the site, from docs/ and the docstrings into site/; SERVE=1 shows it on http://127.0.0.1:8001 instead
	@$(BIN)/python -c 'import material, mkdocs, mkdocstrings' 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 exec $(BIN)/python -m mkdocs \
		$(if $(SERVE),serve --dev-addr 127.0.0.1:8001,build --strict) $(ARGS)

constraints: ## resolve every dependency anew, and write the versions to constraints.txt
	@scripts/constraints.sh

etcd-stubs: ## generate the modules of coordinator/storage/etcd/rallypoint_etcd.proto; CHECK=1 compares them instead
	@scripts/etcd/stubs.sh $(if $(CHECK),--check)

clean: ## remove what the commands made, .venv included
	@rm -rf .venv .cache site build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
