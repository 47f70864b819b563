# Each target first makes what it needs; CONTRIBUTING.md lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup check types test test-all coverage demo bench docs pictures clean format java tools

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ echo "python3 cannot create virtual environments: install python3-venv (Debian: apt-get install python3-venv)"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/penstock warm
	@touch $@

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/oxlint --deny-warnings src/penstock/console/static
	$(BIN)/python -m deptry .
	$(BIN)/pytest -q tests/test_tidy.py tests/test_dead_code.py
	@$(MAKE) --no-print-directory types

# Every public name has a known type. pyright finds the package through the interpreter on the path.
types: $(READY)
	@mkdir -p build
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pyright --verifytypes penstock --ignoreexternal >build/types.txt \
		|| { sed -n '/error:/,$$p' build/types.txt; exit 1; }
	@grep completeness build/types.txt

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

PYTEST := $(BIN)/pytest -n 3 --dist worksteal --durations=20

test: check
	$(PYTEST) -m "not slow"

test-all: check
	$(PYTEST) --cluster-seeds 500

# Branch coverage of src by the fast tests, printed and in build/coverage. Not part of `make test`, because it almost doubles
# the CPU time. Processes that tests start are not measured.
coverage: $(READY)
	$(PYTEST) -m "not slow" --cov --cov-report=term --cov-report=html:build/coverage

# Spark and the peers of the benchmarks need Java; Penstock itself does not.
java:
	@java -version >/dev/null 2>&1 || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -q && apt-get install -y -q openjdk-17-jre-headless maven; \
	else \
		echo "Java 17 or newer is required: install it (Debian: apt-get install openjdk-17-jre-headless maven)"; \
	fi

# Programs that some tests need. Without them these tests are skipped, and the run lists them.
tools: java
	@for tool in kcat:kcat systemd-analyze:systemd prometheus:prometheus chromium:chromium \
		curl:curl ip:iproute2; do \
		package=$${tool#*:}; command -v $${tool%:*} >/dev/null || \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -q && apt-get install -y -q $$package; \
		else \
			echo "$${tool%:*} is not installed (Debian: apt-get install $$package)"; \
		fi; \
	done

# All benchmarks; `make bench BENCH=--quick` omits those that start Java, `BENCH="serde log"` runs these two.
bench: $(READY) java
	$(BIN)/python -m bench $(BENCH)

# A shop on its own platform, until Ctrl-C. ONCE=1 stops at the end; DIR=folder stores the logs there.
demo: $(READY) java
	$(BIN)/python -m examples.demo

# The site, in build/docs.
docs: $(READY)
	$(BIN)/mkdocs build --strict

# The terminal and the pages of README.md and the docs, with the current output of commands and the current console.
pictures: $(READY) tools
	$(BIN)/python -m examples.screenshot docs/pictures/terminal.svg
	$(BIN)/python -m examples.console_pictures docs/pictures

clean:
	rm -rf $(VENV) .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist bench/out
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
