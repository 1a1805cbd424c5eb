# Every target works as the first command typed in a fresh clone: each builds .venv
# when it is missing or out of date, with the first Python >= 3.12 that runs.

PYTHON := .venv/bin/python
SOURCES := astrbot_tool_guard main.py demo tests tools

.DEFAULT_GOAL := help
.PHONY: help setup demo run test lint format package

help:
	@echo 'make demo     AstrBot without and with the guard, side by side (under a minute)'
	@echo 'make run      AstrBot with its WebUI, the plugin and an embedded model; Ctrl-C ends it'
	@echo 'make package  dist/astrbot_plugin_toolcall_guard.zip, to install in the WebUI'
	@echo 'make test     the tests'
	@echo 'make lint     ruff, pyright and the import contracts'
	@echo 'make format   format the sources'
	@echo 'make setup    only build .venv'

setup:
	@sh tools/setup.sh

demo: setup package
	@$(PYTHON) -m demo

run: setup package
	@$(PYTHON) -m demo.playground

test: setup package
	@$(PYTHON) -m pytest

lint: setup
	@$(PYTHON) -m ruff check $(SOURCES)
	@$(PYTHON) -m ruff format --check $(SOURCES)
	@.venv/bin/pyright
	@.venv/bin/lint-imports

format: setup
	@$(PYTHON) -m ruff check --fix $(SOURCES)
	@$(PYTHON) -m ruff format $(SOURCES)

package: setup
	@$(PYTHON) tools/package.py
