# `make fuzz`, `make test` and `make check` install what they need into .venv. Tests and checks are scripts in ci/.
.PHONY: fuzz test check clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --constraint ci/constraints.txt

fuzz: $(VENV)/installed
	$(BIN)/ddefuzz findings import
	$(BIN)/ddefuzz run --budget 60s --jobs auto --fail-on never

test: $(VENV)/test-installed
	ci/test

check: $(VENV)/check-installed
	ci/check

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml ci/constraints.txt | $(BIN)/python
	@echo "installing ddefuzz and its pinned dependencies into $(VENV) (torch is about 200 MB)"
	$(PIP) --editable .
	@touch $@

$(VENV)/test-installed: $(VENV)/installed
	$(PIP) --editable '.[test,report,web,postgres,ray]'
	@touch $@

$(VENV)/check-installed: $(VENV)/test-installed
	$(PIP) --editable '.[test,report,web,postgres,ray,check]'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
