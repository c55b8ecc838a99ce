# Everything starts here: `make` alone lists what there is. Each target first makes .venv, if it is not there yet or
# pyproject.toml or constraints.txt has changed since (tools/install.sh): for learners what the course needs, .venv/.installed; for
# contributors their tools too, .venv/.dev; what builds the site, .venv/.site. Works with GNU make 3.81, the one that macOS has.
# All paths are relative, so that a space in the checkout's own path does no harm.

BIN := .venv/bin
# More for pytest or the demo: make test ARGS="-k beam -x".
ARGS ?=

.PHONY: help demo test test-slow test-all lab notebooks notebooks-check exercises check exercises-check site lint format constraints
.NOTPARALLEL:  # one installation at a time

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

demo: .venv/.installed  ## train soft attention on drawn scenes, evaluate it, caption photographs: minutes on two CPU cores
	$(BIN)/satlib demo $(ARGS)

# Two processes, one thread in each: torch's own threads would only get in each other's way. A file's tests stay together, so that
# what they share is made once.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: .venv/.dev  ## run the quick tests: after every change
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: .venv/.dev  ## run the tests that `make test` leaves out: browsers, Java, torchrun, kernels, long trainings
	$(PYTEST) -m slow $(ARGS)

test-all: .venv/.dev  ## run all tests
	$(PYTEST) $(ARGS)

lab: .venv/.installed  ## open the course in JupyterLab, on copies in work/, where what you save stays yours
	@BIN=$(BIN) sh tools/lab.sh $(ARGS)

notebooks: .venv/.dev  ## run the notebooks whose sources have changed (ARGS=--all: all of them), and write the index
	$(BIN)/python tools/notebooks.py make $(ARGS)

# Two at a time with one thread each, like the tests: for the small tensors of most notebooks two threads are slower than one.
notebooks-check: .venv/.dev  ## run the notebooks; are they what their sources give?
	$(BIN)/python tools/notebooks.py compare
	$(PYTEST) --nbval-lax --nbval-current-env --nbval-cell-timeout 300 $(ARGS) notebooks

# A workbook in which somebody has worked is left alone.
exercises: .venv/.installed  ## write the exercises and their solutions from their sources
	$(BIN)/python tools/exercises.py make $(ARGS)

check: .venv/.installed  ## are your exercises right? a table: done, blank, or wrong and why
	OMP_NUM_THREADS=1 $(BIN)/satlib check $(ARGS)

# What is committed, and the solutions: all of them must be done.
exercises-check: .venv/.dev  ## compare exercises and solutions with their sources, and run the solutions
	$(BIN)/python tools/exercises.py compare
	OMP_NUM_THREADS=1 $(BIN)/satlib check solutions $(ARGS)

site: .venv/.site  ## build the course as a site: notebooks, exercises, documentation, API and live page, in build/site
	OMP_NUM_THREADS=1 $(BIN)/python tools/build_site.py $(ARGS)

# Empty where there is no Node.js with npm: then only CI checks the live page's JavaScript.
NPM := $(shell command -v node >/dev/null 2>&1 && command -v npm 2>/dev/null)

lint: .venv/.dev $(if $(NPM),.venv/npm/.installed)  ## check style, that imports go down only, types (Python and JavaScript), and the limits
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/pyrefly check --no-progress-bar
ifdef NPM
	cd satlib/page/static && PATH="../../../.venv/npm/node_modules/.bin:$$PATH" npm run --silent check
else
	@echo "skipped: the types of the live page's JavaScript, which need Node.js with npm"
endif
	$(BIN)/python tools/budget.py

format: .venv/.dev  ## put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# One resolution for every Python and system that satlib supports (markers tell them apart), without any address.
constraints: .venv/.dev  ## choose the newest versions that pyproject.toml allows, and write constraints.txt
	@echo '# Exact versions that are known to work together; pyproject.toml is where dependencies stand. `make constraints`' > .venv/constraints.new
	@echo '# writes this file.' >> .venv/constraints.new
	$(BIN)/uv --quiet pip compile pyproject.toml --all-extras --universal --python-version 3.11 --no-header --no-annotate \
		>> .venv/constraints.new
	mv .venv/constraints.new constraints.txt

.venv/.installed: pyproject.toml constraints.txt tools/install.sh
	@sh tools/install.sh

.venv/.dev: pyproject.toml constraints.txt tools/install.sh
	@sh tools/install.sh dev

.venv/.site: pyproject.toml constraints.txt tools/install.sh
	@sh tools/install.sh site

# TypeScript and the types of onnxruntime-web, out of the way of wheels and of published pages.
.venv/npm/.installed: satlib/page/static/package.json satlib/page/static/package-lock.json | .venv/.dev
	@mkdir -p .venv/npm
	@cp $^ .venv/npm
	npm ci --prefix .venv/npm --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
