# `make help` lists the targets. Only commands that boot or remove virtual hosts run as root, through sudo
# if needed.

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
# Tests that run as root may leave it files in the caller's folders: these are handed back, however the tests end.
TESTS_AS_ROOT = $(if $(SUDO),trap '$(SUDO) find "$(CURDIR)" "$$HOME/.ansible" "$${HVLAB_CACHE:-$$HOME/.cache/hvlab}" \
	-xdev -path "*/images" -prune -o -user root -exec chown -h "$$(id -u):$$(id -g)" {} + 2>/dev/null || true' EXIT;) \
	$(AS_ROOT)
# On two cores, two of the three hosts have one each.
DEMO_BENCH ?= --suite quick --backend mpi,gloo --hosts 1,2

TEST_LABS := $(addprefix tests/vlab/,inventory gpu/debian gpu/redhat gpu/driver nccl tensorflow ucx find_slow slurm packs keys faults doctor tune bisect)
INSTALLED := .venv/.installed
say = @printf '\n== %s\n' "$(1)"

.PHONY: help install system check check-python check-ansible unit contract browser vlab package test demo demo-slurm down test-down docs clean \
	test-resolver test-repositories test-nccl test-tensorflow test-driver test-user test-user-cold test-pipx test-gpu test-gpu-bundle test-fuzz test-bench test-keys test-packs test-lab test-containers test-ucx test-find-slow test-slurm test-faults test-prove test-bisect test-tune test-tutorials

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##\(.*\)/  make \1\t\2/p' Makefile | expand -t 26

install: $(INSTALLED)  ## install system packages and .venv

$(INSTALLED): setup.py requirements/run.txt requirements/dev.txt | system
	@test -n "$(PYTHON)" || { echo "hvlab needs Python 3.11 or later, and there is none in PATH."; \
		echo "  what to do: install one, or say which: make install PYTHON=/path/to/python3.11"; exit 1; }
	$(call say,virtual environment .venv with $(PYTHON): a minute)
	@test -x .venv/bin/pip || $(PYTHON) -m venv --clear .venv
	@.venv/bin/pip install --quiet --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# Each line: a required program, and the Debian package that provides it.
define PROGRAMS
systemd-nspawn systemd-container
mmdebstrap mmdebstrap
nft nftables
ip iproute2
ssh openssh-client
python3 python3
endef
export PROGRAMS

# Programs with which the tests open the report.
define BROWSER_PROGRAMS
chromium chromium
chromedriver chromium-driver
endef
export BROWSER_PROGRAMS

# Programs with which the tests build package repositories.
define TEST_PROGRAMS
rpmbuild rpm
createrepo_c createrepo-c
gpg gnupg
gpg-agent gnupg
gpgconf gnupg
sudo sudo
endef
export TEST_PROGRAMS

# Shells that the unit tests complete a line in; without root, `make unit` skips what it lacks.
define SHELL_PROGRAMS
zsh zsh
fish fish
endef
export SHELL_PROGRAMS

system:
	@needed="$$PROGRAMS"; $(if $(filter vlab test test-repositories test-driver test-nccl test-containers test-user test-user-cold,$(MAKECMDGOALS)),needed="$$needed"$$'\n'"$$TEST_PROGRAMS";) \
	$(if $(filter test-faults,$(MAKECMDGOALS)),needed="$$needed"$$'\n'"faketime faketime";) \
	$(if $(filter browser test,$(MAKECMDGOALS)),needed="$$needed"$$'\n'"$$BROWSER_PROGRAMS";) \
	$(if $(filter test $(if $(SUDO),,unit),$(MAKECMDGOALS)),needed="$$needed"$$'\n'"$$SHELL_PROGRAMS";) \
	missing=$$(while read -r program package; do \
		command -v "$$program" >/dev/null || echo "$$package"; done <<< "$$needed"); \
	$(or $(PYTHON),python3) -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	$(if $(filter browser test,$(MAKECMDGOALS)),test -n "$$(fc-list :lang=zh 2>/dev/null)" || missing="$$missing fonts-wqy-zenhei";) \
	missing=$$(echo $$missing); \
	test -n "$$missing" || exit 0; \
	printf '\n== system packages: %s\n' "$$missing"; \
	command -v apt-get >/dev/null || { echo "There is no apt-get here."; \
		echo "  what to do: install what your system calls these packages, then run make again"; exit 1; }; \
	test -z "$(SUDO)" || command -v $(SUDO) >/dev/null || { echo "Installing packages needs root, and there is no $(SUDO)."; \
		echo "  what to do: as root, apt-get install $$missing"; exit 1; }; \
	$(SUDO) apt-get update -qq; \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null

check: install  ## lint, types and syntax, in a minute
	@$(MAKE) --jobs=2 --output-sync=target check-python check-ansible

check-python:
	$(call say,ruff)
	@ruff check .
	@ruff format --check .
	$(call say,mypy)
	@mypy

check-ansible:
	$(call say,yamllint)
	@yamllint --strict .
	$(call say,ansible-lint)
	@ansible-lint
	$(call say,ansible-playbook --syntax-check)
	@ansible-playbook --syntax-check site.yml playbooks/*.yml

unit: install  ## tests of single modules, without any host
	$(call say,unit tests)
	@pytest tests/unit --numprocesses=2 --dist=worksteal

contract: install  ## tests that hold the source tree to its rules
	$(call say,contract tests)
	@pytest tests/contract --numprocesses=2

browser: install  ## the report in headless Chromium (installed if missing)
	$(call say,tests in a browser)
	@pytest tests/browser

vlab: install  ## tests on virtual machines (root)
	$(call say,tests on virtual machines)
	@$(TESTS_AS_ROOT) pytest tests/vlab -m vlab -v --durations=10 --numprocesses=2

package: install  ## a wheel and a source package, in dist/
	@python setup.py --quiet sdist
	@pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist dist/hvlab-*.tar.gz
	@ls dist

test: check unit contract browser vlab  ## all of the above

test-resolver: install  ## the resolver's cases and its data, in seconds
	@pytest tests/unit/test_catalogue.py tests/unit/test_resolver*.py tests/unit/test_cli_plan.py

test-repositories: install  ## the GPU roles on apt and dnf, with a repository of test packages: 20 minutes (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_4_repository.py tests/vlab/test_5_driver.py \
		tests/vlab/test_6_cuda.py -m vlab -v -k "not debians_own"

FUZZED := $(addprefix tests/unit/test_,answers.py answers_hosts.py hostile_files.py preflight.py doctor_time.py)

test-fuzz: install  ## made-up answers of hosts, facts, files and logs: more than 10,000, some minutes
	@HVLAB_FUZZ_INPUTS=400 pytest $(FUZZED) -q --numprocesses=2 --dist=worksteal

test-bench: install  ## every playbook alone, and every collective, training and way of sending gradients (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_1_site.py tests/vlab/test_2_bench.py \
		tests/vlab/test_2_training.py -m vlab -v

test-keys: install  ## rotations of keys that are killed, lost authorities, a lost host (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_3_keys.py -m vlab -v

test-packs: install  ## builds that hosts hand on to one another, and damaged copies (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_9_packs.py -m vlab -v

test-lab: install  ## the virtual lab itself, killed at each of its steps (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_lab.py -m vlab -v

test-containers: install  ## ranks in docker's containers on virtual hosts: 6 minutes (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_7_containers.py -m vlab -v

test-nccl: install  ## Horovod with NCCL compiled on a virtual host: 15 minutes, or 3 with a warm cache (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_8_nccl_tests.py tests/vlab/test_9_nccl.py -m vlab -v

test-tensorflow: install  ## Horovod with TensorFlow compiled on a virtual host: 9 minutes, or 2 with a warm cache (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_9_tensorflow.py -m vlab -v

test-ucx: install  ## Open MPI with UCX compiled on virtual hosts, and MPI through it: 12 minutes, or 2 with a warm cache (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_9_ucx.py -m vlab -v

test-find-slow: install  ## a slow link, pair and host among four virtual hosts, and an interruption: 3 minutes (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_9_find_slow.py -m vlab -v

test-slurm: install  ## Slurm on three virtual hosts: benchmarks by srun and inside jobs, sick and drained nodes (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_9_slurm.py tests/vlab/test_9_srun.py tests/vlab/test_9_here.py -m vlab -v

test-faults: install  ## faults put into three virtual hosts and the controller (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 HVLAB_TEST_KEEP=tests/data/faults.json pytest tests/vlab/test_8_faults.py -m vlab -v \
		-k every

test-tutorials: install  ## the sh blocks of docs/tutorials, on virtual hosts: 10 minutes with a warm cache (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_9_tutorials.py -m vlab -v

test-bisect: install  ## a slow build of Horovod, found between two stacks: 20 minutes, 8 with a warm cache (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_9_bisect.py -m vlab -v

test-tune: install  ## a planted setting undone, a killed search, settings of two virtual hosts put back: 7 minutes (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_9_tune.py -m vlab -v

test-prove: install  ## causes that doctor puts into fresh virtual hosts, and takes out again: 10 minutes (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_9_prove.py -m vlab -v

test-driver: install  ## Debian's own NVIDIA driver, built by DKMS on a virtual host: 6 minutes (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_5_driver.py -m vlab -v -k debians_own

test-pipx: package  ## the wheel, as pipx installs it for a plain user with an empty home: 3 minutes
	@pytest tests/pipx -v

test-user: install  ## the README's commands as a plain user with sudo: 5 minutes with a warm cache (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 pytest tests/vlab/test_9_user.py -m vlab -v

test-user-cold: install  ## the same with an empty cache: 20 minutes (root)
	@$(TESTS_AS_ROOT) env HVLAB_TEST_SLOW=1 HVLAB_TEST_COLD=1 pytest tests/vlab/test_9_user.py -m vlab -v

test-gpu: install  ## the GPUs of this machine: provision it, measure NCCL and CUDA-aware MPI (root)
	@$(TESTS_AS_ROOT) pytest tests/gpu -v

BUNDLE ?= gpu-bundle
BUNDLE_DRIVER ?= 580

test-gpu-bundle: install  ## all that test-gpu needs, in a folder for a machine without network: 40 minutes (root)
	@$(AS_ROOT) python -m tests.gpu.bundle "$(BUNDLE)" --driver "$(BUNDLE_DRIVER)" --limit-mib "$(BUNDLE_LIMIT_MIB)" \
		--without "$(BUNDLE_WITHOUT)"

demo: install  ## a complete lab: boot, provision, check, measure, report
	$(call say,boot three virtual hosts)
	@$(AS_ROOT) hvlab lab up
	$(call say,provision)
	@ansible-playbook site.yml
	$(call say,check)
	@hvlab verify
	$(call say,measure: hvlab bench $(DEMO_BENCH))
	@hvlab bench $(DEMO_BENCH)
	$(call say,report)
	@hvlab report
	@echo
	@echo "Records and raw output: $${HVLAB_RESULTS:-$(CURDIR)/results}"
	@echo "The lab is still up: \`hvlab lab status$${ANSIBLE_INVENTORY:+ -i $$ANSIBLE_INVENTORY}\` shows it, \`make down\` removes it."

demo-slurm: export ANSIBLE_INVENTORY := inventory/slurm
demo-slurm: demo  ## the same with Slurm, which starts the ranks

down:  ## remove the virtual hosts
	@$(AS_ROOT) hvlab lab down
	@$(AS_ROOT) hvlab lab down -i inventory/slurm

test-down:
	@[ ! -x .venv/bin/hvlab ] || for lab in $(TEST_LABS); do $(AS_ROOT) hvlab lab down -i $$lab; done

docs: install  ## the documentation as a site, reference pages included, in build/site
	@PYTHONPATH=. mkdocs build --quiet --strict
	@echo "build/site/index.html; its search needs a server: python3 -m http.server -d build/site"

clean:  ## remove what make created here (not the lab, not the cache)
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .ansible
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
