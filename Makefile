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

# Spark takes the Java of JAVA_HOME. Where there is none, scripts/java.sh has said so, and the command goes on without.
JAVA = export JAVA_HOME="$$(scripts/java.sh --install || true)";

.PHONY: help setup demo test check quick sim scenarios bench serve format constraints clean

help: ## list the commands
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

setup: $(READY) ## make .venv with everything in it; again only when pyproject.toml or constraints.txt changed
	@:

$(READY): pyproject.toml constraints.txt scripts/setup.sh
	@scripts/setup.sh
	@touch $@

demo: setup ## the main job: a year of flights, shared out between two Spark drivers
	@$(JAVA) exec $(BIN)/python -m examples.flights.demo $(ARGS)

test: setup ## all the tests; what this machine lacks is skipped with its reason, never in CI
	@$(JAVA) $(BIN)/python -m tests.real.kafka; $(JAVA) $(BIN)/python -m tests.real.spark_kafka; $(BIN)/python -m tests.real.languages; exec $(BIN)/python -m pytest $(ARGS)

quick: setup ## units, scenarios and a short simulation: under a minute, no network
	@exec $(BIN)/python -m pytest -m "not (slow or kafka or spark or prometheus or postgresql or languages)" \
		--ignore=tests/real --ignore=tests/end_to_end $(ARGS)

sim: setup ## the simulation: SEED=n shows one schedule, SCHEDULES=n runs as many, FROM=n begins there
	@exec $(BIN)/python -m tests.simulation \
		$(if $(SEED),--seed $(SEED) --verbose,--from $(FROM) --schedules $(SCHEDULES)) $(ARGS)

scenarios: setup ## the stories of tests/scenarios; REWRITE=1 writes what comes of them now into the files, to be read
	@REWRITE="$(REWRITE)" exec $(BIN)/python -m pytest -q tests/scenarios $(ARGS)

check: setup ## format, lint, types, arrows
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: setup ## put every file into the form that check asks for
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup ## the benchmarks: machine, date and load stand beside each number
	@exec $(BIN)/python -m bench $(ARGS)

serve: setup ## the service on http://127.0.0.1:8000, with its data in rallypoint.db
	@exec $(BIN)/rallypoint serve $(ARGS)

constraints: ## resolve every dependency anew, and write the versions to constraints.txt
	@scripts/constraints.sh

clean: ## remove what the commands made, .venv included
	@rm -rf .venv .cache build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
