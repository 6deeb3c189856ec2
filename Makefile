# `make help` lists what there is. Only what boots or removes virtual machines runs as root, through sudo
# where that is needed.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export PATH := $(CURDIR)/.venv/bin:$(PATH):/usr/sbin:/sbin
export PYTHONUNBUFFERED := 1

SUDO ?= $(if $(filter 0,$(shell id -u)),,sudo)
AS_ROOT = $(if $(SUDO),$(SUDO) -E env PATH="$$PATH" HOME="$$HOME")
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $$p && break; done)
DEMO_BENCH ?= --backend mpi,gloo --workload allreduce --sizes 1K:4M:8 --hosts 1,3 --slots 1

TEST_LAB := tests/vlab/inventory
INSTALLED := .venv/.installed
say = @printf '\n== %s\n' "$(1)"

.PHONY: help install system check unit contract vlab test demo down test-down docs clean

help:  ## list what there is
	@sed -n 's/^\([a-z]*\):.*##\(.*\)/  make \1\t\2/p' Makefile | expand -t 20

install: $(INSTALLED)  ## put what is needed on this machine and into .venv

$(INSTALLED): setup.py requirements/run.txt requirements/dev.txt | system
	@test -n "$(PYTHON)" || { echo "hvlab needs Python 3.11 or later, and there is none in PATH."; \
		echo "  what to do: install one, or say which: make install PYTHON=/path/to/python3.11"; exit 1; }
	$(call say,virtual environment .venv with $(PYTHON): a minute)
	@test -x .venv/bin/pip || $(PYTHON) -m venv --clear .venv
	@.venv/bin/pip install --quiet --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# Each line: the program that has to be there, and the Debian package that brings it.
define PROGRAMS
systemd-nspawn systemd-container
mmdebstrap mmdebstrap
nft nftables
ip iproute2
ssh openssh-client
python3 python3
endef
export PROGRAMS

system:
	@missing=$$(while read -r program package; do \
		command -v "$$program" >/dev/null || echo "$$package"; done <<< "$$PROGRAMS"); \
	$(or $(PYTHON),python3) -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	missing=$$(echo $$missing); \
	test -n "$$missing" || exit 0; \
	printf '\n== system packages: %s\n' "$$missing"; \
	command -v apt-get >/dev/null || { echo "There is no apt-get here."; \
		echo "  what to do: install what your system calls these packages, then run make again"; exit 1; }; \
	test -z "$(SUDO)" || command -v $(SUDO) >/dev/null || { echo "Installing packages needs root, and there is no $(SUDO)."; \
		echo "  what to do: as root, apt-get install $$missing"; exit 1; }; \
	$(SUDO) apt-get update -qq; \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null

check: install  ## lint, types and syntax, in seconds
	$(call say,ruff)
	@ruff check .
	@ruff format --check .
	$(call say,mypy)
	@mypy
	$(call say,yamllint)
	@yamllint --strict .
	$(call say,ansible-lint)
	@ansible-lint
	$(call say,ansible-playbook --syntax-check)
	@ansible-playbook --syntax-check site.yml playbooks/*.yml

unit: install  ## tests of single modules, without any host
	$(call say,unit tests)
	@pytest tests/unit

contract: install  ## tests that hold the tree to its rules
	$(call say,contract tests)
	@pytest tests/contract

vlab: install  ## tests on virtual machines (root)
	$(call say,tests on virtual machines)
	@$(AS_ROOT) pytest tests/vlab -m vlab -v --durations=10
	@test -z "$(SUDO)" || (cd "$${HVLAB_CACHE:-$$HOME/.cache/hvlab}" && \
		$(SUDO) chown -R "$$(id -u):$$(id -g)" packs sources wheels)

test: check unit contract vlab  ## all of the above

demo: install  ## a lab from nothing: boot, provision, check, measure, show
	$(call say,three virtual machines)
	@$(AS_ROOT) hvlab lab up
	$(call say,provision them)
	@ansible-playbook site.yml
	$(call say,check them)
	@hvlab verify
	$(call say,measure: hvlab bench $(DEMO_BENCH))
	@hvlab bench $(DEMO_BENCH)
	$(call say,results)
	@hvlab results show
	@echo
	@echo "Records and raw output: $${HVLAB_RESULTS:-$(CURDIR)/results}"
	@echo "The lab is still up: see it with \`hvlab lab status\`, take it down with \`make down\`."

down:  ## take the virtual machines down
	@$(AS_ROOT) hvlab lab down

test-down:
	@if [ -x .venv/bin/hvlab ] && [ -e "$(TEST_LAB)" ]; then $(AS_ROOT) hvlab lab down -i "$(TEST_LAB)"; fi

docs: install  ## write the generated pages of docs/
	@python -m tests.contract.generate

clean:  ## remove what make made here (not the lab, not the cache)
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .ansible
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
