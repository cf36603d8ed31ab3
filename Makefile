# make demo   installs Consort and runs a demonstration with heterogeneous clients
# make test   installs what the tests need and runs all checks
# make docs   builds the documentation into site/
# make tables writes the tables of the pages from the files in results/
# make lock   pins all dependencies with hashes, in requirements/
# make audit  installs what is locked, and asks for known vulnerabilities
VENV ?= .venv
PYTHON ?= python3
PIP = $(VENV)/bin/pip install --quiet --constraint constraints.txt
export HF_HUB_OFFLINE = 1
export HF_HUB_DISABLE_TELEMETRY = 1
export NO_MKDOCS_2_WARNING = 1

.PHONY: demo setup setup-test browser lint types test docs tables benchmarks lock audit clean

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

tables: setup
	$(VENV)/bin/python docs/result_tables.py

docs: $(VENV)/.installed-docs
	$(VENV)/bin/mkdocs build --strict

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) --editable '.[docs]'
	touch $@

# For Linux on x86-64, Python 3.11 and the CPU build of torch. Versions stay as they are in the files; delete one to take
# the newest. With `TORCH=`, torch comes from where uv is set up to look, and not from PyTorch's own index.
TORCH ?= --torch-backend cpu
LOCK = $(VENV)/bin/uv pip compile --quiet --generate-hashes --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
  --constraint constraints.txt --custom-compile-command 'make lock' --no-emit-index-url $(TORCH)

lock: setup-test
	$(LOCK) --extra test --output-file requirements/test.txt pyproject.toml
	$(LOCK) --extra flower --extra secure --extra privacy --constraint requirements/test.txt \
	  --output-file requirements/server-client.txt pyproject.toml
	$(LOCK) --constraint requirements/test.txt --output-file requirements/build.txt requirements/build.in

# In an environment of its own, with every hash checked. pip-audit needs a network: OFFLINE=1 leaves it out.
AUDITED ?= .venv-audit
audit: setup-test
	$(PYTHON) -m venv --clear $(AUDITED)
	$(AUDITED)/bin/pip install --quiet --require-hashes --requirement requirements/server-client.txt
	$(AUDITED)/bin/python requirements/audit.py requirements/server-client.txt
	$(AUDITED)/bin/python requirements/audit.py requirements/server-client.txt --pins > $(AUDITED)/pins.txt
	[ -n "$(OFFLINE)" ] || $(VENV)/bin/uv tool run pip-audit --strict --no-deps --disable-pip --requirement $(AUDITED)/pins.txt

benchmarks: setup-test
	for script in overhead trust many_clients engines startup fedfew fedmh dense privacy own; do $(VENV)/bin/python benchmarks/$$script.py --check || exit 1; done

clean:
	rm -rf $(VENV) $(AUDITED) site .mypy_cache .pytest_cache .ruff_cache .hypothesis
