# Every target works as the first command typed in a fresh clone: each builds .venv
# when it is missing or out of date, with the first Python >= 3.12 that runs.

RUN := .venv/bin/python
# For test-hosts: all, oldest, or versions with commas; and a Python, as 3.13.
HOSTS := all
PYTHON := $(RUN)
# For test: how many processes; each starts an AstrBot of its own.
WORKERS := 2
# For fuzz and storm: how long, in seconds.
SECONDS := 60
SOURCES := astrbot_tool_guard main.py benchmarks demo tests tools

.DEFAULT_GOAL := help
.PHONY: help setup demo run test test-hosts test-astrbot fuzz storm bench bench-check lint format package

help:
	@echo 'make demo     AstrBot without and with the guard, side by side (under a minute)'
	@echo 'make run      AstrBot with its WebUI, the plugin and an embedded model; Ctrl-C ends it'
	@echo 'make package  dist/astrbot_plugin_toolcall_guard.zip, to install in the WebUI'
	@echo 'make test     the tests'
	@echo 'make test-hosts    those that need AstrBot, on each supported line of it'
	@echo '                   (HOSTS=oldest or HOSTS=4.28.2,4.29.0; PYTHON=3.13)'
	@echo 'make test-astrbot  the tests of AstrBot itself, without and with the guard'
	@echo 'make fuzz     broken input without end, for SECONDS=60'
	@echo 'make storm    a thousand sessions at once with mixed faults, for SECONDS=60'
	@echo 'make bench    ratios of speed, memory and quality, with and without the guard and'
	@echo '              beside other libraries (about ten minutes); bench-check compares'
	@echo '              them with benchmarks/results.json'
	@echo 'make lint     ruff, pyright and the import contracts'
	@echo 'make format   format the sources'
	@echo 'make setup    only build .venv'

setup:
	@sh tools/setup.sh

demo: setup package
	@$(RUN) -m demo

run: setup package
	@$(RUN) -m demo.playground

test: setup package
	@$(RUN) -m pytest -n $(WORKERS) --dist loadfile

test-hosts: setup package
	@$(RUN) -m tools.hosts --hosts '$(HOSTS)' --python '$(PYTHON)'

test-astrbot: setup
	@$(RUN) -m tools.astrbot_tests

fuzz: setup
	@$(RUN) -m tests.fuzz --seconds $(SECONDS)

storm: setup
	@$(RUN) -m tests.storm --seconds $(SECONDS)

bench: setup package
	@$(RUN) -m benchmarks

bench-check: setup package
	@$(RUN) -m benchmarks --check

lint: setup
	@$(RUN) -m ruff check $(SOURCES)
	@$(RUN) -m ruff format --check $(SOURCES)
	@.venv/bin/pyright
	@.venv/bin/lint-imports

format: setup
	@$(RUN) -m ruff check --fix $(SOURCES)
	@$(RUN) -m ruff format $(SOURCES)

package: setup
	@$(RUN) tools/package.py
