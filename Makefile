# make demo   installs Consort and runs a demonstration with heterogeneous clients
# make test   installs what the tests need and runs all checks
# make docs   builds the documentation into site/
VENV ?= .venv
PYTHON ?= python3
PIP = $(VENV)/bin/pip install --quiet --constraint constraints.txt
export HF_HUB_OFFLINE = 1
export HF_HUB_DISABLE_TELEMETRY = 1
export NO_MKDOCS_2_WARNING = 1

.PHONY: demo setup setup-test browser lint types test docs benchmarks clean

demo: setup
	$(VENV)/bin/consort demo

setup: $(VENV)/.installed
setup-test: $(VENV)/.installed-test browser

# torch is installed first and alone, so that no other package can pull in another build of it.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) --editable '.[test]'
	touch $@

# The report is tested in a real browser. If none can be installed, these tests are skipped.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver >/dev/null; } || \
	  echo "no Chromium: the report will not be tested in a browser (apt-get install chromium chromium-driver)"

lint: setup-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: setup-test
	$(VENV)/bin/mypy

test: lint types
	$(VENV)/bin/pytest -n 2

docs: $(VENV)/.installed-docs
	$(VENV)/bin/mkdocs build --strict

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) --editable '.[docs]'
	touch $@

benchmarks: setup-test
	for script in overhead trust many_clients engines startup fedfew fedmh dense privacy; do $(VENV)/bin/python benchmarks/$$script.py --check || exit 1; done

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis
