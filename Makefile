# The front door. Each target makes what it needs first; a second call finds it made.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup check types test test-all coverage demo bench docs pictures clean format java tools

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ echo "python3 cannot make virtual environments here: install python3-venv (Debian: apt-get install python3-venv)"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/penstock warm
	@touch $@

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
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
	$(PYTEST)

# Branch coverage of src by the fast tests, printed and in build/coverage. Not part of `make test`: with it the tests take
# almost twice the processor time. Processes that tests start do not count.
coverage: $(READY)
	$(PYTEST) -m "not slow" --cov --cov-report=term --cov-report=html:build/coverage

# Spark and the peers of the benches run on Java; Penstock itself does not.
java:
	@java -version >/dev/null 2>&1 || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -q && apt-get install -y -q openjdk-17-jre-headless maven; \
	else \
		echo "Java 17 or newer is needed here: install it (Debian: apt-get install openjdk-17-jre-headless maven)"; \
	fi

# What some tests need beside Python: real peers. Without them these tests are skipped, and the run says so.
tools: java
	@for tool in kcat:kcat systemd-analyze:systemd; do \
		package=$${tool#*:}; command -v $${tool%:*} >/dev/null || \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -q && apt-get install -y -q $$package; \
		else \
			echo "$${tool%:*} is not installed (Debian: apt-get install $$package)"; \
		fi; \
	done

# Every bench beside its peers; `make bench BENCH=--quick` leaves out those that start Java, `BENCH="serde log"` runs these.
bench: $(READY) java
	$(BIN)/python -m bench $(BENCH)

# A shop on a platform of its own, until Ctrl-C. ONCE=1 stops by itself; DIR=folder keeps the logs there.
demo: $(READY) java
	$(BIN)/python -m examples.demo

# The site, in build/docs.
docs: $(READY)
	$(BIN)/mkdocs build --strict

# The terminal that README shows, drawn anew from what the commands say.
pictures: $(READY)
	$(BIN)/python -m examples.screenshot docs/pictures/terminal.svg

clean:
	rm -rf $(VENV) .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist bench/out
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
