# Everything about Gatebook is one of these words. `make` alone explains them.
.DEFAULT_GOAL := help
.PHONY: help install demo run test test-matrices test-agents typescript check proxy bench slow evaluate lock format schema recorded commands visual morning screenshots first-paint clean browser docs
# The variables of the environment (DATABASE_URL, GATEBOOK_…) reach every program; PORT has a default here.
export PORT ?= 8000
# Without its cached modules every start takes seconds longer.
unexport PYTHONDONTWRITEBYTECODE

# The first Python that is new enough and makes virtual environments; PYTHON=… chooses another. That
# of the system comes first: distributions build it with optimizations, pyenv does not by default,
# and its tests take a fifth longer. docs/decisions/0045-optimized-python.md has the figures.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
APPS := config pages retention erasure rebuild importers hooks traces api investigation monitoring recovery proofs display notifications approvals ledger sessions accounts web shell journal db
CODE := manage.py $(APPS) $(wildcard client evaluation) tests

help: ## explain these words
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The embedded PostgreSQL comes with the tools for tests.
install: .venv/.runtime .venv/.docs .venv/.client $(if $(filter embedded:%,$(DATABASE_URL)),.venv/.tests) ## put what Gatebook needs into .venv (quick when it is there already)

demo: install ## run Gatebook on http://127.0.0.1:8000 with a sample project and a demo agent (PORT=… changes the port)
	@$(BIN)/python manage.py setup && $(BIN)/python manage.py load_tools --unless-declared evaluation/demo_tools.yaml && \
		$(BIN)/python manage.py load_policies --unless-active evaluation/demo_policies.yaml --activate enforce && \
		$(BIN)/python manage.py load_sample --unless-loaded && \
		GATEBOOK_LOG_LEVEL=$${GATEBOOK_LOG_LEVEL:-WARNING} exec $(BIN)/python -m config.supervisor --docs --demo $(BIN)/python -m evaluation.demo.agent --killed

run: install ## run Gatebook without the demo agent, its rules and the sample; Ctrl-C stops it, data stays in var/
	@$(BIN)/python manage.py setup && exec $(BIN)/python -m config.supervisor --docs

test: .venv/.tests .venv/.client browser typescript ## run the tests, on SQLite and on a real PostgreSQL, with a real browser
	@$(BIN)/python -m tests.run_suite $(ARGS)

test-matrices: .venv/.tests .venv/.client browser typescript ## run the cases and examples that make test leaves out, on both databases
	@$(BIN)/python -m tests.run_suite --matrices $(ARGS)

check: .venv/.tests .venv/.client ## look at the code without running it: style, types, imports, migrations, templates, settings
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports
	GATEBOOK_VAR=var/check DATABASE_URL= $(BIN)/python manage.py makemigrations --check --dry-run
	find templates -name '*.html' -print0 | xargs -0r $(BIN)/djade --target-version 5.2 --check
	GATEBOOK_VAR=var/check DATABASE_URL= GATEBOOK_HTTPS=1 $(BIN)/python manage.py check --deploy --fail-level WARNING

test-agents: .venv/.tests .venv/.client .venv/agents/.installed .venv/agents/frameworks/.installed .venv/agents/recipes/.installed typescript ## test with the real Claude Code, Codex, Gemini CLI, agent frameworks and scripted models, installed into .venv/agents
	TESTS_KILLS=20 $(BIN)/python -m pytest -q tests/hooks/real tests/clients tests/client/integrations $(ARGS)
	MYPYPATH=client $(BIN)/mypy --config-file /dev/null --strict --python-executable .venv/agents/frameworks/bin/python client/gatebook_client/integrations

typescript: ## install the compiler of clients/typescript with npm; without npm its tests are skipped
	@command -v npm >/dev/null 2>&1 || exit 0; cd clients/typescript && \
		if [ ! node_modules/.installed -nt package.json ]; then \
		npm install --package-lock=false --no-fund --no-audit --silent && touch node_modules/.installed || \
		echo "npm cannot install TypeScript now; the tests of its client are skipped." >&2; fi

proxy: .venv/.tests .venv/.client ## run Gatebook behind a real nginx with docs/examples/nginx.conf (as root with apt, nginx is installed)
	@command -v nginx >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends nginx-light openssl; }
	$(BIN)/python -m pytest tests/config/behind_nginx.py $(ARGS)

bench: .venv/.tests .venv/.client ## measure, up to 50 minutes; QUICK=1 takes at most 4
	@$(BIN)/python -m evaluation.bench $(if $(QUICK),--quick) $(ARGS)

slow: .venv/.tests ## try ordinary ingest beside 1,000 slow clients, on both databases; takes 3 minutes
	@$(BIN)/python -m evaluation.slow_clients $(ARGS)

evaluate: .venv/.tests .venv/.client ## kill agents at every step and let them contend; TIER=T0, T1 (the default) or T2; ARGS=--publish writes the page
	@$(BIN)/python -m evaluation.crashtest --tier $(or $(TIER),T1) $(ARGS)

format: .venv/.tests ## put code and templates into the project's form
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)
	find templates -name '*.html' -print0 | xargs -0r $(BIN)/djade --target-version 5.2

schema: .venv/.tests ## record what the migrations make on SQLite and PostgreSQL, after every change of a migration
	@folder=$$(mktemp -d /var/tmp/gatebook-schema-XXXXXX) && chmod 711 $$folder && trap "rm -rf $$folder" EXIT && \
		GATEBOOK_VAR=$$folder/var DATABASE_URL= $(BIN)/python manage.py record_schema && \
		GATEBOOK_VAR=$$folder/var DATABASE_URL=embedded:$$folder/postgresql $(BIN)/python manage.py record_schema

recorded: .venv/.tests ## count how often checks of requests warn of the recorded sessions in DATA=<folder>
	@folder=$$(mktemp -d /var/tmp/gatebook-recorded-XXXXXX) && trap "rm -rf $$folder" EXIT && \
		export GATEBOOK_VAR=$$folder DATABASE_URL= && $(BIN)/python manage.py setup >/dev/null && \
		$(BIN)/python manage.py check_recorded_plans $(DATA) $(ARGS)

commands: .venv/.tests ## measure how shell commands of the recorded sessions in DATA=<folder> are understood
	@$(BIN)/python manage.py check_recorded_commands $(DATA) $(ARGS)

visual: .venv/.tests browser ## take pictures of every page into var/visual, about 10 minutes; BEFORE=<git ref> compares their layout with that ref's
	@$(BIN)/python -m tests.visual $(if $(BEFORE),--before $(BEFORE)) $(ARGS)

morning: .venv/.tests browser ## take pictures of a staged morning of requests with traps: DATA=FOLDER
	@$(BIN)/python -m tests.visual.morning $(if $(DATA),$(DATA),$(error set DATA=FOLDER))

screenshots: .venv/.tests browser ## renew docs/screenshots from the sample project, light and dark
	@$(BIN)/python -m tests.visual.screenshots docs/screenshots

first-paint: .venv/.tests browser ## measure the first paint of every page on 3G, about 8 minutes; LOADS=1 for a glance
	@$(BIN)/python -m tests.visual.first_paint $(LOADS)

docs: install ## build the documentation site again; make run and make demo do it when a document is newer
	@GATEBOOK_VAR=var/check DATABASE_URL= $(BIN)/python manage.py build_docs

lock: .venv/.tests ## choose the newest versions that pyproject.toml allows and write all lock files
	$(COMPILE) --upgrade --extra redis --output-file requirements.lock pyproject.toml
	$(COMPILE) --upgrade --constraint requirements.lock --extra docs --output-file requirements-docs.lock pyproject.toml
	$(COMPILE) --upgrade --constraint requirements-docs.lock --constraint requirements.lock --extra redis --extra embedded --extra test --extra docs --extra dev \
		--output-file requirements-dev.lock pyproject.toml

clean: ## remove .venv and what tools left behind; var/ holds your data and stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage htmlcov var/check var/test
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Hashes for every platform, and no address of any registry in the file.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Gatebook needs Python 3.11 or newer with the module venv (on Debian and Ubuntu: apt-get install python3-venv). Put one on the PATH or say PYTHON=/path/to/it." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
		echo "That Python cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

.venv/.runtime: requirements.lock | .venv/bin/python
	@echo "Installing into .venv …" >&2
	@$(PIP) install --require-hashes --requirement requirements.lock
	@touch $@

# What builds the documentation site. A server that does without it needs requirements.lock only.
.venv/.docs: requirements-docs.lock requirements.lock | .venv/.runtime
	@$(PIP) install --require-hashes --requirement requirements-docs.lock
	@touch $@

.venv/.tests: requirements-dev.lock requirements.lock | .venv/bin/python
	@echo "Installing into .venv, with the tools for tests …" >&2
	@$(PIP) install --require-hashes --requirement requirements-dev.lock
	@touch .venv/.runtime .venv/.docs $@

# The client is used from where it is written: one line of the environment's own path names its folder. Its command is
# .venv/bin/gatebook.
.venv/.client: client/pyproject.toml Makefile | .venv/bin/python
	@$(BIN)/python -c 'import pathlib, sys, sysconfig; \
		(pathlib.Path(sysconfig.get_path("purelib")) / "gatebook_client.pth").write_text(str(pathlib.Path("client").resolve())); \
		command = pathlib.Path(sysconfig.get_path("scripts")) / "gatebook"; \
		command.write_text(f"#!{sys.executable}\nfrom gatebook_client.cli import main\n\nraise SystemExit(main())\n"); \
		command.chmod(0o755)'
	@touch $@

# The coding agents of `make test-agents`, in the versions that the tests know.
.venv/agents/.installed: tests/hooks/real/agents.txt | .venv/bin/python
	@command -v npm >/dev/null || { echo "Node.js with npm is missing. Install it, then run make test-agents again." >&2; exit 1; }
	@npm install --no-fund --no-audit --prefix .venv/agents $$(cat tests/hooks/real/agents.txt)
	@touch $@

# The agent frameworks, in an environment of their own: they bring a hundred packages.
.venv/agents/frameworks/.installed: tests/client/integrations/frameworks.txt | .venv/bin/python
	@$(BIN)/python -m venv .venv/agents/frameworks
	@.venv/agents/frameworks/bin/python -m pip --disable-pip-version-check --quiet install --requirement $<
	@touch $@

# What the recipes of docs/how-to use, apart from the frameworks.
.venv/agents/recipes/.installed: tests/client/integrations/recipes.txt | .venv/bin/python
	@$(BIN)/python -m venv .venv/agents/recipes
	@.venv/agents/recipes/bin/python -m pip --disable-pip-version-check --quiet install --requirement $<
	@touch $@

# A browser of the system is preferred; as root with apt it is installed, elsewhere playwright fetches one. The headless
# shell does the same with half of the work, but not every distribution has it.
browser: .venv/.tests
	@for name in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do \
		command -v $$name >/dev/null 2>&1 && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		apt-get update -qq && for name in chromium-headless-shell chromium; do \
			DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$name && exit 0; done; exit 1; \
	else $(BIN)/playwright install --only-shell chromium; fi
