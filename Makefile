# Only commands that boot or remove virtual hosts run as root, through sudo if needed.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export PATH := $(CURDIR)/.venv/bin:$(PATH):/usr/sbin:/sbin
export PYTHONUNBUFFERED := 1
# Tests start Python some hundred times: each time it would compile hvlab again.
unexport PYTHONDONTWRITEBYTECODE

SUDO ?= $(if $(filter 0,$(shell id -u)),,sudo)
AS_ROOT = $(if $(SUDO),$(SUDO) -E env PATH="$$PATH" HOME="$$HOME")
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $$p && break; done)
# Tests that run as root may leave it files in the caller's folders: these are handed back, however the tests end.
TESTS_AS_ROOT = $(if $(SUDO),trap '$(SUDO) find "$(CURDIR)" "$$HOME/.ansible" "$${HVLAB_CACHE:-$$HOME/.cache/hvlab}" \
	-xdev -path "*/images" -prune -o -user root -exec chown -h "$$(id -u):$$(id -g)" {} + 2>/dev/null || true' EXIT;) \
	$(AS_ROOT)
# On two cores, two of the three hosts have one each. A lab of torch alone has neither MPI nor Horovod's Gloo.
TORCH_ALONE = $(shell grep -ls '^lab_horovod: torch' $(or $(ANSIBLE_INVENTORY),inventory/lab)/group_vars/all.yml)
DEMO_BENCH ?= --suite quick --hosts 1,2 $(if $(TORCH_ALONE),,--backend mpi,gloo)
LABS ?= inventory/lab inventory/slurm
# An expression of pytest's markers: slurm, "nccl or ucx".
MARK ?=

# Programs, and the Debian packages with other names that provide them.
PROGRAMS := systemd-nspawn=systemd-container mmdebstrap nft=nftables ip=iproute2 ssh=openssh-client python3
# Shells in which tests complete a line, browsers that open the report; repositories of packages, shifted clocks.
SHELLS := zsh fish
BROWSER := chromium chromedriver=chromium-driver
REPOSITORIES := rpmbuild=rpm createrepo_c=createrepo-c gpg=gnupg gpg-agent=gnupg gpgconf=gnupg sudo faketime
asked = $(filter $(1),$(MAKECMDGOALS))
# Where the machine is no Debian, mmdebstrap checks Debian's packages with these.
DEBIAN_KEYS := /usr/share/keyrings/debian-archive-keyring.gpg
NEEDED = $(PROGRAMS) $(if $(wildcard $(DEBIAN_KEYS)),,$(DEBIAN_KEYS)=debian-archive-keyring gpg) \
	$(if $(call asked,test test-all $(if $(SUDO),,unit)),$(SHELLS)) \
	$(if $(call asked,test test-all),$(BROWSER)) $(if $(call asked,test-all),$(REPOSITORIES))

define LINTERS
ruff check .
ruff format --check .
mypy
yamllint --strict .
ansible-lint
ansible-playbook --syntax-check site.yml playbooks/*.yml
endef
export LINTERS

INSTALLED := .venv/.installed
TOOLS := .venv/.tools
PIP := .venv/bin/pip install --quiet --quiet --disable-pip-version-check -c requirements/run.txt
OR_AGAIN = || { status=$$?; echo "make: \`make $@\` ended early; run it again: what is built stays." >&2; exit $$status; }
say = @printf '\n== %s\n' "$(1)"

.PHONY: demo test down help install system check unit walk test-all test-gpu package docs clean

demo: install  ## a complete lab: boot, provision, check, measure, report (with Slurm: ANSIBLE_INVENTORY=inventory/slurm)
	$(call say,boot three virtual hosts)
	@$(AS_ROOT) hvlab lab up $(OR_AGAIN)
	$(call say,provision)
	@ansible-playbook site.yml $(OR_AGAIN)
	$(call say,check)
	@hvlab verify $(OR_AGAIN)
	$(call say,measure: hvlab bench $(DEMO_BENCH))
	@hvlab bench $(DEMO_BENCH) $(OR_AGAIN)
	$(call say,report)
	@hvlab report $(OR_AGAIN)
	@echo
	@echo "Records and raw output: $${HVLAB_RESULTS:-$(CURDIR)/results}"
	@echo "The lab is still up: \`hvlab lab status$${ANSIBLE_INVENTORY:+ -i $$ANSIBLE_INVENTORY}\` shows it, \`make down\` removes it."
	@echo
	@echo "next: . .venv/bin/activate, then hvlab bench --suite lab7 (README.md, \"I have a lab sheet\")"

test: check  ## linters, unit tests, contracts, the report in a browser, and a walk over virtual hosts (root)
	$(call say,unit tests, and beside them a walk over virtual hosts: each is shown when it has ended)
	@$(MAKE) --jobs=2 --output-sync=target unit walk
	$(call say,unit tests that wait most of the time, contract tests)
	@pytest tests/unit -m slow --numprocesses=6 --dist=worksteal
	@pytest tests/contract --numprocesses=2
	$(call say,tests in a browser)
	@pytest tests/browser --numprocesses=2

down:  ## remove the virtual hosts
	@for lab in $(LABS); do $(AS_ROOT) hvlab lab down -i "$$lab"; done

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##\(.*\)/  make \1\t\2/p' Makefile | expand -t 18

install: $(INSTALLED)  ## install hvlab into .venv, and the system packages that it needs

$(INSTALLED): setup.py requirements/run.txt | system
	$(call say,hvlab with $(PYTHON) into .venv: a minute)
	@test -x .venv/bin/pip || $(PYTHON) -m venv --clear .venv
	@$(PIP) -e .[hosts,pictures,tune]
	@touch $@

$(TOOLS): $(INSTALLED) requirements/dev.txt
	$(call say,linters and test tools into .venv: a minute)
	@$(PIP) -r requirements/dev.txt
	@touch $@

system:
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "hvlab needs Python 3.11 or later; here is $$($(or $(PYTHON),python3) --version 2>&1)."; \
		echo "  what to do: uv python install 3.12, then make install PYTHON=\$$(uv python find 3.12)"; \
		echo "  on Ubuntu 22.04 also: sudo apt-get install python3.11-venv, then make install"; exit 1; }
	@missing=; for needed in $(NEEDED); do \
		test -e "$${needed%=*}" || command -v "$${needed%=*}" >/dev/null || missing="$$missing $${needed#*=}"; done; \
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		missing="$$missing $$($(PYTHON) -c 'import sys; print("python3.%d-venv" % sys.version_info[1])')"; \
	$(if $(call asked,test test-all),test -n "$$(fc-list :lang=zh 2>/dev/null)" || missing="$$missing fonts-wqy-zenhei";) \
	test -n "$$missing" || exit 0; \
	printf '\n== system packages:%s\n' "$$missing"; \
	command -v apt-get >/dev/null || { echo "There is no apt-get here."; \
		echo "  what to do: install what your system calls these packages, then run make again"; exit 1; }; \
	test -z "$(SUDO)" || command -v $(SUDO) >/dev/null || { echo "Installing packages needs root, and there is no $(SUDO)."; \
		echo "  what to do: as root, apt-get install$$missing"; exit 1; }; \
	$(SUDO) apt-get update -qq || { echo "once more in 30 s"; sleep 30; $(SUDO) apt-get update -qq; }; \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -o DPkg::Lock::Timeout=300 -y -qq --no-install-recommends $$missing >/dev/null

check: $(TOOLS)  ## lint, types and syntax, in a minute
	$(call say,linters)
	@xargs -P 2 -d '\n' -I {} bash -c 'said=$$({} 2>&1) || { printf "== %s\n%s\n" "{}" "$$said"; exit 1; }' <<< "$$LINTERS"

unit: $(TOOLS)  ## tests of single modules, without any host
	$(call say,unit tests)
	@pytest tests/unit -m "not slow" --numprocesses=3 --dist=worksteal

# Its hosts wait most of the time: beside the unit tests, which do not.
walk: $(TOOLS)  ## the walk over virtual hosts alone (root)
	$(call say,a walk over virtual hosts)
	@$(TESTS_AS_ROOT) pytest tests/vlab -m walk -v --durations=10

test-all: package  ## every test but those of GPUs, hours, or MARK=slurm alone (root); `pytest --markers` lists them
	@$(TESTS_AS_ROOT) pytest tests/unit tests/contract tests/browser tests/pipx tests/vlab -m "$(MARK)" -v --hypothesis-profile=fuzz

test-gpu: $(TOOLS)  ## the GPUs of this machine: provision it, measure NCCL and CUDA-aware MPI (root)
	@$(TESTS_AS_ROOT) pytest tests/gpu -v

package: $(TOOLS)  ## a wheel and a source package, in dist/
	@python setup.py --quiet sdist
	@pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist dist/hvlab-*.tar.gz
	@ls dist

docs: $(TOOLS)  ## the documentation as a site, reference pages included, in build/site
	@PYTHONPATH=. mkdocs build --quiet --strict
	@echo "build/site/index.html; its search needs a server: python3 -m http.server -d build/site"

clean:  ## remove what make created here (not the lab, not the cache)
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .ansible
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
