"""A lab of one machine, without ssh: hvlab runs inside a node, on that node."""

import json
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.vlab.labs import PROJECT

pytestmark = pytest.mark.site

PARTS = ("hvlab", "playbooks", "roles", "group_vars", "templates", "inventory", "tests")
FILES = ("site.yml", "ansible.cfg", "pyproject.toml")
PROGRAM = "#!/root/venv/bin/python\nfrom ansible.cli.{} import main\nmain()\n"
BARE = "unset SSH_AUTH_SOCK; cd /root/project && PATH=/root/venv/bin:$PATH ANSIBLE_HOME=/root/.ansible"


@pytest.fixture(scope="module")
def machine(lab):
    """The node t2 with this project and what it runs on, as a person's own machine has them."""
    if lab.on("t2", "python3 -c 'import sys; print(*sys.version_info[:2])'").split() != [
        str(part) for part in sys.version_info[:2]
    ]:
        pytest.skip("the nodes have another Python than this machine, whose packages they would borrow")
    lab.on(
        "t2",
        "rm -rf /root/venv /root/project && python3 -m venv --without-pip /root/venv && mkdir /root/project",
    )
    home = Path("/var/lib/hvlab/vmain/nodes/t2/root/root")
    packages = next((home / "venv/lib").glob("python3*")) / "site-packages"
    shutil.copytree(sysconfig.get_path("purelib"), packages, dirs_exist_ok=True)
    for name in ("playbook", "inventory"):
        script = home / f"venv/bin/ansible-{name}"
        script.write_text(PROGRAM.format(name), "utf-8")
        script.chmod(0o755)
    for part in PARTS:
        shutil.copytree(PROJECT / part, home / "project" / part)
    for file in FILES:
        shutil.copy2(PROJECT / file, home / "project" / file)
    yield lambda command, expect=0: lab.on("t2", f"{BARE} {command}", expect)
    lab.on("t2", "rm -rf /root/venv /root/project")


def test_it_is_provisioned_checked_and_measured(machine):
    # Without its record Open MPI is tried again: as the lab's user, by a root whose TMPDIR is its own.
    machine("rm -f /etc/ansible/facts.d/hvlab_openmpi.fact")
    machine("python -m hvlab provision -i inventory/this-machine")
    machine("python -m hvlab verify -i inventory/this-machine")
    machine("python -m hvlab bench -i inventory/this-machine --backend mpi,gloo --sizes 1K:64K:64 --slots 2")
    rows = json.loads(machine("python -m hvlab results show --format json"))
    told = {(row["proved_backend"], row["status"], row["world_size"]) for row in rows}
    assert told == {("mpi", "ok", 2), ("gloo", "ok", 2)}
    assert {tuple(row["hosts"]) for row in rows} == {("this-machine",)}
