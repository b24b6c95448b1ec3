# The first use of a target sets up the virtual environment that the target needs. No target needs
# root.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(VENV)/.compiled
SDKS := $(VENV)/.sdks
INSPECTOR := $(VENV)/inspector
NODE_CLIENTS := $(VENV)/node-clients
# The site generator has an environment of its own: it shares dependencies with the agent SDKs.
SITE := $(VENV)/site
# PYTHON is the first Python that is new enough. `make PYTHON=... run` chooses another Python.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	"$$p" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
CMD ?= echo "Hello from $$0 $$BASH_VERSION"; echo "and this went to stderr" >&2
export CMD
# Number of parallel test processes. Tests mostly wait, so this number may exceed the number of CPUs.
WORKERS ?= 5
# pytest loads `tests.support.startup` first, which undoes ignored signals and closed descriptors that
# pytest inherited, for example from nohup or `<&-`. Python writes bytecode once, for all workers and the
# next run, even if the environment sets PYTHONDONTWRITEBYTECODE.
PYTEST := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX="$(CURDIR)/$(VENV)/bytecode" \
	$(BIN)/python -m pytest -p tests.support.startup

.PHONY: run test test-fast test-adapters lint bench chaos docs docs-site format clean

run: $(READY)
	@printf '%s' "$$CMD" \
		| $(BIN)/python -c 'import json, sys; json.dump({"command": sys.stdin.read()}, sys.stdout)' \
		| $(BIN)/nacre call -

test: $(COMPILED)
	$(PYTEST) -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --ignore tests/adapters $(ARGS)

# Run only the fast tests, which need no daemon and do not sleep. This target is for use while editing.
test-fast: $(READY)
	$(PYTEST) -n 2 --ignore tests/adapters -m 'not slow' $(ARGS)

# Run the tests that need large or external programs: the agent SDKs, and the clients of nacre that npm
# installs.
test-adapters: $(SDKS) $(INSPECTOR) $(NODE_CLIENTS)
	$(BIN)/mypy
	$(PYTEST) -n $(WORKERS) --dist loadgroup tests/adapters $(ARGS)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m bench $(ARGS)

# Run the long stress tests; `make test` runs a small part of these tests.
chaos: $(READY)
	NACRE_SOAK=10000 NACRE_RACES=2000 $(PYTEST) --limit 3600 tests/engine/test_soak.py $(ARGS)
	NACRE_KILLS=200 $(PYTEST) --limit 3600 tests/warden/test_recovery.py -k killing $(ARGS)
	$(BIN)/python -m tests.support.fuzz 1 100000
	NACRE_SCRIPTS=20000 $(PYTEST) --limit 3600 tests/shell_state/test_pipeline_report.py
	NACRE_PLAIN=3000 $(PYTEST) --limit 3600 tests/shell_state/test_stateless_commands.py
	$(BIN)/python -m tests.support.session_oracle 1 50000 & \
		$(BIN)/python -m tests.support.session_oracle 50001 100000 && wait $$!
	NACRE_SCRIPTS=100000 NACRE_STATES=5000 $(PYTEST) --limit 3600 tests/bash/test_known_state.py \
		tests/bash/test_second_opinion.py -k 'real or known_after'

docs: $(READY)
	$(BIN)/python scripts/draw_docs.py

# The documentation as a static site, in build/site. The site works without a network.
docs-site: $(SITE)/.ready
	$(SITE)/bin/python scripts/build_site.py

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(READY): requirements.txt requirements-dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "nacre needs Python 3.11 or newer, with venv; install it" >&2; exit 1; }
	@echo "Setting up $(VENV) with $(PYTHON) ..." >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

# Write the bytecode once. Without it, every worker of the first `make test` compiles all modules. A test
# module that cannot be imported is reported by `make test` itself.
$(COMPILED): $(READY)
	@$(PYTEST) --collect-only -q --ignore tests/adapters >/dev/null || true
	@touch $@

$(SDKS): $(READY) requirements-adapters.txt
	@echo "Setting up the agent SDKs ..." >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-adapters.txt
	@touch $@

$(SITE)/.ready: $(READY) requirements-site.txt
	@echo "Setting up the site generator ..." >&2
	@$(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-site.txt
	@touch $@

# MCP's inspector is an MCP client from another project. If the inspector is not installed, its tests
# report "DID NOT RUN".
$(INSPECTOR): $(READY)
	@npm install --silent --no-audit --no-fund --prefix $@ @modelcontextprotocol/inspector@0.15.0 \
		>/dev/null 2>&1 || { rm -rf $@; echo "MCP's inspector cannot be installed here" >&2; }

# The RPC clients of pi and the conformance suite of MCP. If they are not installed, their tests
# report "DID NOT RUN".
$(NODE_CLIENTS): $(READY) scripts/install_node_clients.sh
	@echo "Setting up the clients of pi and the conformance suite of MCP ..." >&2
	@scripts/install_node_clients.sh $@ >/dev/null \
		|| { rm -rf $@; echo "npm cannot install the clients of pi and the MCP conformance suite; their tests will not run" >&2; }
	@test ! -d $@ || touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis build dist
