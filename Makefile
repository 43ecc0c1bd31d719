# Two commands do everything on a fresh machine with Python 3.11 or later:
#   make demo    sets up, runs the main job on a small real training, shows the result
#   make test    sets up, runs all checks and tests
# More: make lint | pictures | dist | bench | mindspore | test-mindspore | test-peers | test-launch | test-device | test-versions | soak | attack | coverage | sanitize | clean

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint pictures dist bench mindspore test-mindspore test-peers launch test-launch test-device test-versions soak attack coverage sanitize clean setup peers

setup:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or later with venv was found; install one, or say make PYTHON=/path/to/python"; exit 2; }
	@$(PYTHON) tools/make_env.py $(VENV) --constraints constraints.txt --extras dev

demo: setup
	@$(BIN)/python examples/demo.py

test: setup
	@$(BIN)/python tools/phases.py \
		"lint=$(MAKE) --no-print-directory lint" \
		"tests=$(BIN)/python -m pytest -q -n 2 -m 'not soak and not peers and not launch and not device and not alone'" \
		"tests alone=$(BIN)/python -m pytest -q -m 'alone and not soak and not peers and not launch and not device'" \
		"mindspore=$(MAKE) --no-print-directory test-mindspore"

lint: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python tools/check_web.py

# The docs' pictures of pages, of runs that are made for it. Needs Chromium.
pictures: setup
	@$(BIN)/python tools/pictures.py

# The source archive and a wheel for each Python that is here, each tried in an environment of its own.
dist: setup
	@$(BIN)/python tools/dist.py

# An environment of its own: MindSpore needs an older numpy. Where no index has it for this Python it is not made.
mindspore:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or later with venv was found; install one, or say make PYTHON=/path/to/python"; exit 2; }
	@$(PYTHON) tools/make_env.py .venv-mindspore --constraints constraints-mindspore.txt --extras torch,mindspore --packages pytest pytest-xdist coverage apitimewrapper expecttest --needs mindspore

test-mindspore: mindspore
	@if [ -f .venv-mindspore/.made-from ]; then .venv-mindspore/bin/python -m pytest -q -n 2 -m mindspore tests/mindspore; \
	else echo "skipped: the MindSpore tests need MindSpore, which no index here has for this Python (3.11 or 3.12 would do)"; fi

peers:
	@$(PYTHON) tools/make_env.py .venv-peers --constraints constraints-peers.txt --extras peers

test-peers: peers
	@.venv-peers/bin/python -m pytest -q -m peers tests/peers

launch:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or later with venv was found; install one, or say make PYTHON=/path/to/python"; exit 2; }
	@$(PYTHON) tools/make_env.py .venv-launch --constraints constraints-launch.txt --extras launch

# Real mpirun, srun, Slurm and Ray. Installs Debian's openmpi-bin, slurm-wlm and munge where it may (root, apt-get), else says what is skipped.
test-launch: launch
	@$(PYTHON) tools/launch_programs.py
	@.venv-launch/bin/python -m pytest -q -m launch tests/launch

# On an accelerator: a device of our own that works asynchronously, built by torch's cpp_extension (a C++ compiler; a minute, once).
test-device: setup
	@$(BIN)/python -m pytest -q -m device tests/device

# The same tests on other versions of torch, Python and our dependencies: docs/versions.md. ROWS="torch-2.15 lowest" for some.
test-versions:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or later with venv was found; install one, or say make PYTHON=/path/to/python"; exit 2; }
	@$(PYTHON) tools/versions.py $(ROWS)

bench: setup peers mindspore
	@for script in $(filter-out benchmarks/mindspore_overhead.py,$(wildcard benchmarks/*.py)); do echo "=== $$script"; .venv-peers/bin/python $$script || exit 1; done
	@if [ -f .venv-mindspore/.made-from ]; then .venv-mindspore/bin/python benchmarks/mindspore_overhead.py; fi

sanitize: setup
	@$(BIN)/python tools/sanitize.py

# The long attack on every kind of file (docs/trust.md) is one of these.
soak: setup
	@$(BIN)/python -m pytest -q -m soak

# Files damaged and forged, commands killed: docs/trust.md. ARGS="--seed 2 --files 500" for other ones.
attack: setup
	@$(BIN)/python -W ignore tools/attack.py $(ARGS)

# Lines and branches that the tests reach, subprocesses too, and what they do not. ARGS=store for one room.
coverage: setup
	@$(BIN)/python tools/covered.py $(ARGS)

clean:
	rm -rf $(VENV) .venv-peers .venv-mindspore .venv-launch build dist demo src/*.egg-info
	find src -name '*.so' -delete
