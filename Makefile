# make demo   set everything up and fit models/diabetes
# make test   set everything up and run the linters and the tests
# make fast-test   run the tests that need no CmdStan and less than two seconds each
# make test-all    as make test, with the slow ones: calibration, worked models, short tutorials, R
# make test-r      run the tests that need R
# make test-docs   run the tutorials that take several minutes each
# make test-faults run what breaks things on purpose, for minutes, and print its totals
# make coverage    run every test and print the share of pysrc/ that they reach; at least 93%
# make dist [PYTHONS=python3.12]   build the packages and try them in fresh environments
# make docs        build the documentation site into site/
# make bench-NAME [ARGS=--quick]   see benchmarks/README.md
# make study-NAME ARGS=--quick|--full   see benchmarks/README.md

PYTHON ?= python3
BIN := .venv/bin
# The group of a test is its file if that has a fixture which all of its tests share.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup
# Tests that start processes of their own have these compile their programs.
COMPILE := --compile -q $(addprefix --ignore=tests/,command/test_cli_fit.py infer/test_export.py faults)
BENCHMARKS := bench-gradient bench-ess bench-metric bench-threads bench-scale bench-fit \
  bench-train bench-temperature bench-baselines bench-subspaces bench-asymmetry bench-cluster
STUDIES := study-coverage study-large study-simulation study-toy study-tables study-images study-effects

.PHONY: demo test test-all test-r test-docs test-faults coverage lint fast-test cmdstan golden dist docs clean
.PHONY: $(BENCHMARKS) $(STUDIES)

demo: .venv/installed cmdstan
	$(BIN)/semistan fit models/diabetes/model.toml --out runs/diabetes --overwrite

test: lint cmdstan
	-$(PYTEST) $(COMPILE) -m "cmdstan and not (slow or tutorials or faults)"
	$(PYTEST) -m "not (slow or tutorials or faults)"

test-all: lint cmdstan
	-$(PYTEST) $(COMPILE) -m "cmdstan and not (tutorials or faults)"
	$(PYTEST) -m "not (tutorials or faults)"

test-r: .venv/installed-dev cmdstan
	$(PYTEST) tests/show/test_r.py tests/r

test-docs: .venv/installed-dev cmdstan
	$(PYTEST) -m tutorials

# Kills, full disks and damaged files by the hundred, within 20 minutes each.
test-faults: .venv/installed-dev cmdstan
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s -m faults tests/faults

coverage: .venv/installed-dev cmdstan
	$(PYTEST) -m "not (tutorials or faults)" --cov --cov-report=term:skip-covered --cov-fail-under=93

fast-test: .venv/installed-dev
	$(PYTEST) -m "not (cmdstan or lengthy or slow or tutorials or faults)"

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

cmdstan: .venv/installed
	$(BIN)/semistan install-cmdstan

# Write models/*/program.stan anew, to be read in the diff.
golden: .venv/installed
	cd tests && ../$(BIN)/python -m support.golden

docs: .venv/installed-dev
	$(BIN)/python docs/make_site.py site

# Build the wheel and the source distribution, and try both in environments of their own; the wheel
# with other Pythons too, as make dist PYTHONS="python3.12 python3.13". PyTorch is gigabytes there.
dist: .venv/installed-dev cmdstan
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	cd tests && ../$(BIN)/python -m support.dist ../dist $(PYTHONS)

$(BENCHMARKS): bench-%: .venv/installed-bench cmdstan
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/$*.py $(ARGS)

$(STUDIES): study-%: .venv/installed-bench cmdstan
	cd benchmarks && OMP_NUM_THREADS=1 ../$(BIN)/python -m studies.$* $(ARGS)

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

.venv/installed-bench: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	# Libraries below laplace-torch ask for torchvision, whose build breaks beside a CPU's torch.
	$(BIN)/pip uninstall --quiet --yes torchvision
	touch $@

clean:
	rm -rf .venv runs dist site
