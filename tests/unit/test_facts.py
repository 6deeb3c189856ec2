"""The probes of hvlab_facts, on recorded output."""

import ast
import configparser
import json
import os
from pathlib import Path
from types import SimpleNamespace

import jinja2
import pytest
from ansible.module_utils import (
    hvlab_disk,
    hvlab_network,
    hvlab_packed,
    hvlab_probe,
    hvlab_system,
)

from hvlab.ansible.modules import hvlab_facts, hvlab_files
from hvlab.base.paths import project_dir
from tests.contract.tree import ROOT, load

MODULES = project_dir() / "hvlab/ansible"
IP_ADDR = """[
{"ifname":"lo","flags":["LOOPBACK","UP"],"operstate":"UNKNOWN","addr_info":[{"local":"127.0.0.1","prefixlen":8,"scope":"host"}]},
{"ifname":"host0","flags":["BROADCAST","UP"],"mtu":1500,"operstate":"UP","address":"8e:4f:ac:16:e0:57","addr_info":[
  {"family":"inet","local":"198.18.0.11","prefixlen":24,"scope":"global"},
  {"family":"inet6","local":"fe80::1","prefixlen":64,"scope":"link"}]},
{"ifname":"eth1","flags":["BROADCAST"],"mtu":9000,"operstate":"DOWN","address":"aa:bb:cc:dd:ee:ff","addr_info":[{}]}
]"""
USERS = """root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
hvlab:x:1000:1000::/home/hvlab:/bin/bash
old:x:1001:1001::/home/old:/bin/bash
+@staff::::::
+::::::
"""
FILES = {
    "/etc/passwd": USERS,
    "/etc/group": "root:x:0:\nhvlab:x:1000:\nvideo:x:44:hvlab,old\n+\n",
    "/etc/shadow": "root:*:1::::::\nhvlab:*:1::::::\nold:!:1::::::\n",
}


def test_interfaces(monkeypatch):
    monkeypatch.setattr(hvlab_network, "run", lambda *_: IP_ADDR)
    assert hvlab_network.interfaces() == {
        "host0": {"mac": "8e:4f:ac:16:e0:57", "cidrs": ["198.18.0.11/24"], "up": True, "mtu": 1500},
        "eth1": {"mac": "aa:bb:cc:dd:ee:ff", "cidrs": [], "up": False, "mtu": 9000},
    }


def test_the_processor_has_the_kernels_name_for_it(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7763 64-Core Processor\n")
    assert hvlab_facts.processor_model(str(file)) == "AMD EPYC 7763 64-Core Processor"
    file.write_text("processor\t: 0\nCPU implementer\t: 0x41\n")
    assert hvlab_facts.processor_model(str(file)) is None


def test_packages_are_those_installed(monkeypatch):
    listing = "installed adduser 3.134\nconfig-files hwloc 2.9.0-1\ninstalled gcc 4:12.2.0-3\n"
    monkeypatch.setattr(hvlab_system, "run", lambda *_: listing)
    monkeypatch.setattr(hvlab_system.os.path, "exists", lambda _: True)
    assert hvlab_system.packages() == {"adduser": "3.134", "gcc": "4:12.2.0-3"}


def test_users_that_can_log_in(monkeypatch):
    monkeypatch.setattr(hvlab_system, "read", FILES.get)
    users = hvlab_system.users()
    assert list(users) == ["root", "hvlab", "old"]
    assert users["hvlab"] == {
        "uid": 1000,
        "group": "hvlab",
        "groups": ["video"],
        "home": "/home/hvlab",
        "shell": "/bin/bash",
        "locked": False,
    }
    assert users["old"]["locked"]


def test_a_name_nobody_knows_has_no_addresses():
    assert hvlab_network.resolves(["localhost", "no-such-host.invalid"]) == {
        "localhost": ["127.0.0.1"],
        "no-such-host.invalid": [],
    }


def test_a_name_server_that_hangs_costs_little(monkeypatch):
    monkeypatch.setattr(hvlab_network, "RESOLVE_SECONDS", 0.05)
    monkeypatch.setattr(hvlab_network.socket, "getaddrinfo", lambda *_: hvlab_network.time.sleep(0.5) or [])
    assert hvlab_network.resolves(["slow"]) == {"slow": None}


def test_packs_down_to_three_folders(tmp_path):
    for folder in ("oneccl", "openmpi/4.1.8", "a/b/c", "a/b/c/d"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / ".hvlab-pack.json").write_text(json.dumps({"name": folder}))
    found = hvlab_packed.folders(str(tmp_path))
    assert {path.removeprefix(f"{tmp_path}/") for path in found} == {"oneccl", "openmpi/4.1.8", "a/b/c"}


def test_free_space_of_a_path_that_is_not_there_yet(tmp_path):
    assert hvlab_disk.free_mb(str(tmp_path / "a/b")) == hvlab_disk.free_mb(str(tmp_path))


def test_the_largest_initramfs(tmp_path, monkeypatch):
    monkeypatch.setattr(hvlab_disk, "INITRAMFS", str(tmp_path / "init*.img*"))
    assert hvlab_disk.initramfs_mb() == 0
    for name, size in (("initrd.img-6.1.0-40-amd64", 3 << 20), ("initramfs-5.14.0.el9.x86_64.img", 1)):
        (tmp_path / name).write_bytes(b"x" * size)
        assert hvlab_disk.initramfs_mb() == 3
    (tmp_path / "initramfs-0-rescue-x.img").write_bytes(b"x" * (4 << 20))
    assert hvlab_disk.initramfs_mb() == 3


def test_what_killed_runs_left_for_ansible_is_listed_but_not_that_of_the_task_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "alice")
    homes = {"alice": SimpleNamespace(pw_dir=str(tmp_path), pw_uid=os.getuid())}
    monkeypatch.setattr(hvlab_disk.pwd, "getpwnam", homes.__getitem__)
    monkeypatch.setattr(hvlab_disk, "SOURCES", str(tmp_path / "hvlab-source-"))
    assert hvlab_disk.find_leftovers(None) == []
    own, left = (tmp_path / ".hvlab/tmp" / f"ansible-tmp-1795473712.7-28114-{number}" for number in (1, 2))
    for folder in (own, left, tmp_path / ".hvlab/tmp/of-somebody-else"):
        folder.mkdir(parents=True)
    assert hvlab_disk.find_leftovers(f"{own}/") == [str(left)]
    assert hvlab_disk.find_leftovers(None) == [str(own), str(left)]
    sources = tmp_path / "hvlab-source-x7k2"
    sources.mkdir()
    assert hvlab_disk.find_leftovers(f"{own}/") == [str(left), str(sources)]
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(project_dir() / "ansible.cfg")
    assert settings["defaults"]["remote_tmp"] == "~/.hvlab/tmp"


@pytest.mark.parametrize("error", [FileNotFoundError("ip"), ValueError("odd"), OSError("no")])
def test_a_probe_that_fails_gives_null(error):
    def broken():
        raise error

    told = []
    assert hvlab_probe.probe(told.append, broken) is None
    assert len(told) == (0 if isinstance(error, FileNotFoundError) else 1)


def test_what_runs_on_hosts_is_written_for_old_pythons():
    for path in MODULES.glob("module*/*.py"):
        assert ast.parse(path.read_text(), path, feature_version=(3, 8)).body, path


def test_local_facts_are_without_the_hosts_of_the_lab():
    record = {"hosts": {"n1": {}}, "stack": {"gcc": "12"}}
    assert hvlab_facts.without_hosts(record) == {"stack": {"gcc": "12"}}
    assert hvlab_facts.without_hosts("no JSON") == "no JSON"


# hosts.debian.tmpl of cloud-init 22.4.2, without its comments.
TEMPLATE = """## template:jinja
{# The value '{{hostname}}' will be replaced with the local-hostname -#}
127.0.1.1 {{fqdn}} {{hostname}}
127.0.0.1 localhost
"""


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    """A host with cloud-init's template and configuration."""
    monkeypatch.setattr(hvlab_network, "CLOUD", str(tmp_path))
    monkeypatch.setattr(hvlab_network, "CLOUD_DATA", str(tmp_path / "cloud-config.txt"))
    for name in ("templates", "cloud.cfg.d"):
        (tmp_path / name).mkdir()
    for family in ("debian", "redhat"):
        (tmp_path / f"templates/hosts.{family}.tmpl").write_text(TEMPLATE)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "written"),
    [
        ({}, False),
        ({"cloud.cfg": "manage_etc_hosts: true\n"}, True),
        ({"cloud.cfg.d/90_x.cfg": "manage_etc_hosts: 'template'\n"}, True),
        ({"cloud-config.txt": "#cloud-config\nmanage_etc_hosts: True\n"}, True),
        # cloud-init then adds a line for the host's own name at the end, and leaves the others.
        ({"cloud.cfg": "manage_etc_hosts: localhost\n"}, False),
        ({"cloud.cfg": "# manage_etc_hosts: true\n"}, False),
        ({"cloud.cfg": "manage_etc_hosts: true\n", "cloud-config.txt": "manage_etc_hosts: false\n"}, False),
        ({"cloud.cfg": "manage_etc_hosts: true\n", "cloud-init.disabled": ""}, False),
    ],
)
def test_cloud_init_that_writes_etc_hosts_is_found(cloud, files, written):
    for name, text in files.items():
        (cloud / name).write_text(text)
    assert bool(hvlab_network.hosts_template()) == written


def test_what_cloud_init_writes_at_boot_has_the_labs_names(cloud):
    (cloud / "cloud.cfg").write_text("manage_etc_hosts: true\n")
    [task] = [task for task in load(ROOT / "roles/common/tasks/main.yml") if "hvlab_files" in task]
    drop = task["vars"]["__common_names"]["drop"]
    template = Path(hvlab_network.hosts_template())
    text = hvlab_files.with_block(template.read_text(), "10.0.0.1 n1", drop)
    first, _, rest = text.partition("\n")
    assert first == "## template:jinja"
    assert jinja2.Template(rest).render(hostname="n1", fqdn="n1.example").split("\n") == [
        *("127.0.0.1 localhost", "# BEGIN hvlab", "10.0.0.1 n1", "# END hvlab"),
    ]
