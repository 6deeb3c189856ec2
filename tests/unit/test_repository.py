"""Package sources: the fingerprint of a key, entries in the way, what to do about a failure."""

import base64
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleActionFail

from hvlab.ansible import plugin
from hvlab.ansible.action import hvlab_repository
from hvlab.ansible.module_utils.hvlab_managed import RECORD
from hvlab.ansible.modules.hvlab_repository import apply, proxy
from hvlab.base.errors import CheckError, UsageError
from hvlab.stack.provision import repository
from hvlab.stack.provision.names import nvidia_keys, signers
from hvlab.stack.provision.roles import plan_nvidia_repository

FILE = Path(__file__).parents[1] / "data/two-keys.asc"
TWO_KEYS = FILE.read_bytes()
# What GnuPG says of the keys in that file.
FIRST, SECOND = "15CF248826CF7D79D66638FF87AEFA9FE0805398", "F78C71BC8247810F1479B1C10EA1355E2AE444C8"
REPOS = "developer.download.nvidia.com/compute/cuda/repos"
OPTIONS = {
    "name": "x",
    "url": "http://x",
    "suite": "/",
    "components": [],
    "enabled": True,
    "priority": None,
    "label": "",
    "gpgcheck": True,
    "repo_gpgcheck": False,
}


@pytest.mark.parametrize("manager", ["apt", "dnf"])
def test_one_key_is_taken_out_of_a_file(manager):
    source = repository.repository(manager, OPTIONS)
    key = repository.choose(repository.keys(TWO_KEYS, "it"), SECOND, "it")
    assert [one.fingerprint.upper() for one in repository.keys(source.key_file(key), "it")] == [SECOND]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no public key"),
        (b"<html>not found</html>", "unexpected EOF"),
        (TWO_KEYS[:200], "is not an OpenPGP public key"),
    ],
)
def test_what_is_no_key_is_told(data, why):
    with pytest.raises(CheckError, match=why):
        repository.keys(data, "it")


@pytest.mark.parametrize(
    "wanted", [FIRST, FIRST.lower(), f"0x{FIRST}", "15CF 2488 26CF 7D79 D666 38FF 87AE FA9F E080 5398"]
)
def test_a_fingerprint_may_be_written_in_several_ways(wanted):
    found = repository.keys(TWO_KEYS, "it")
    digits = repository.fingerprint(wanted)
    assert repository.choose(found, digits, "it").fingerprint.upper() == FIRST
    with pytest.raises(CheckError, match=f"has the fingerprint {SECOND}, not"):
        repository.choose(found[1:], digits, "it")


@pytest.mark.parametrize("text", ["3bf863c", "D42D0685", FIRST[-16:], FIRST[:-1], "not hexadecimal"])
def test_only_a_whole_fingerprint_is_one(text):
    """Eight digits can be had for any key in minutes."""
    with pytest.raises(UsageError, match="is not a whole fingerprint"):
        repository.fingerprint(text)


def test_a_key_with_nothing_to_compare_it_with_is_refused():
    with pytest.raises(CheckError, match=f"has the fingerprint {FIRST}, {SECOND}, and none is set") as caught:
        repository.choose(repository.keys(TWO_KEYS, "it"), repository.fingerprint(""), "it")
    assert "set the fingerprint to it" in caught.value.remedy


class Host:
    """Stands for the module on a host: ``there`` are its files, ``says`` is what its package manager says."""

    def __init__(self, **there):
        self.there = {path: data.encode() for path, data in there.items()}
        self.says, self.steps = "", []

    def task(self, check_mode=False, manager="apt", **args):
        action = hvlab_repository.ActionModule.__new__(hvlab_repository.ActionModule)
        given = {"name": "x", "url": "http://x", "key": str(FILE), "fingerprint": FIRST, **args}
        action._task = SimpleNamespace(args=given, check_mode=check_mode, async_val=0)
        action._execute_module = self.execute
        base = plugin.ActionBase
        run, base.run = base.run, lambda *_: {}
        try:
            return action.run(None, {"inventory_hostname": "n1", "ansible_facts": {"pkg_mgr": manager}})
        finally:
            base.run = run

    def execute(self, *, module_name, module_args, task_vars):
        self.steps.append(module_args["step"])
        assert module_args["step"] != "apply" or module_args["record"] == RECORD
        if module_args["step"] == "look":
            files = {path: hvlab_repository.base64.b64encode(data) for path, data in self.there.items()}
            return {"files": dict.fromkeys(module_args["paths"]) | files, "refreshed": bool(self.there)}
        if module_args["step"] == "fetch":
            return {"content": hvlab_repository.base64.b64encode(self.there[module_args["url"]])}
        refused = bool(self.says)
        for path, text in module_args["files"].items() if not refused else ():
            self.there[path] = hvlab_repository.base64.b64decode(text or "")
        return {"refused": refused, "output": self.says}


def test_it_is_written_once_and_then_costs_one_round_trip():
    host = Host()
    done = host.task(priority=600, label="NVIDIA CUDA")
    assert (done["changed"], done["fingerprint"]) == (True, FIRST)
    assert sorted(host.there) == sorted(done["paths"])
    assert b"Signed-By: /etc/apt/keyrings/x.gpg" in host.there["/etc/apt/sources.list.d/x.sources"]
    host.steps = []
    assert not host.task(priority=600, label="NVIDIA CUDA")["changed"]
    assert host.steps == ["look"]


@pytest.mark.parametrize(
    ("dump", "conf", "used"),
    [
        ('Acquire::http::Proxy "http://p:3128";', "", "http://p:3128"),
        ('Acquire::http::Proxy "http://p:3128";\nAcquire::https::Proxy "http://s:1";', "", "http://s:1"),
        ('Acquire::http::Proxy "http://p:1";\nAcquire::https::Proxy "DIRECT";', "", ""),
        ('acquire::HTTP::proxy "http://p:3128";', "", "http://p:3128"),
        ('Acquire::http::Proxy "http://p:1";\nAcquire::http::Proxy::x "DIRECT";', "", ""),
        ('Acquire::http::Proxy::y "http://p:1";', "", ""),
        ("", "[main]\nproxy = http://p:3128\n", "http://p:3128"),
        ("", "[main]\nproxy=_none_\n", ""),
        ("", "", ""),
    ],
)
def test_a_key_is_fetched_through_the_package_managers_proxy(dump, conf, used):
    assert proxy("https://x/key.pub", dump, conf) == used


KEYRING = "/usr/share/keyrings/cuda-archive-keyring.gpg"
LIST = "/etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list"
CUDA = "https://nvidia.example/compute/cuda/repos/ubuntu2404/x86_64"
ENTRY = f"deb [signed-by={KEYRING}] {CUDA}/ /\n"


KEY_URL = f"{CUDA}/D42D0685.pub"
SECTION = f"[cuda]\nname=cuda\nbaseurl={CUDA}\nenabled=1\ngpgcheck=1\ngpgkey={KEY_URL}\n"


@pytest.mark.parametrize(
    ("entry", "key", "kept"),
    [
        (ENTRY, TWO_KEYS, True),
        (f"Types: deb\nURIs: {CUDA}/\nSuites: /\nSigned-By: {KEYRING}\n", TWO_KEYS, True),
        (ENTRY, b"no key", False),
        (ENTRY.replace("ubuntu2404", "ubuntu2204"), TWO_KEYS, False),
        (ENTRY + ENTRY.replace("ubuntu2404", "ubuntu2204"), TWO_KEYS, False),
        (f"deb {CUDA}/ /\n", TWO_KEYS, False),
        # `dnf config-manager --add-repo`, as NVIDIA's guide has it.
        (SECTION, TWO_KEYS, True),
        (SECTION.replace(KEY_URL, f"file://{KEYRING}"), TWO_KEYS, True),
        (SECTION, b"no key", False),
        (SECTION.replace("gpgcheck=1", "gpgcheck=0"), TWO_KEYS, False),
        (SECTION.replace(KEY_URL, "https://elsewhere.example/key"), TWO_KEYS, False),
        (SECTION.replace("ubuntu2404", "rhel8"), TWO_KEYS, False),
    ],
)
def test_an_entry_for_the_same_address_with_the_right_key_is_kept(entry, key, kept):
    task, dnf = {"url": CUDA, "conflicts": ["/compute/cuda/repos/"]}, entry.startswith("[")
    file = LIST if entry.startswith("deb") else f"{LIST.removesuffix('.list')}.sources"
    if dnf:
        task, file = task | {"key": KEY_URL, "manager": "dnf"}, "/etc/yum.repos.d/cuda-rhel9.repo"
    host = Host(**{file: entry})
    host.there |= {KEYRING: key} | ({KEY_URL: key, "https://elsewhere.example/key": key} if dnf else {})
    there = set(host.there)
    if not kept:
        with pytest.raises(AnsibleActionFail, match=r"already leads to this source|not an OpenPGP"):
            host.task(**task)
        return
    done = host.task(**task)
    assert (done["changed"], done["file"], done["fingerprint"]) == (False, file, FIRST)
    assert set(host.there) == there


def test_check_mode_only_looks():
    host = Host()
    assert host.task(check_mode=True)["changed"]
    assert host.steps == ["look"]


@pytest.mark.parametrize(
    ("args", "says", "told"),
    [
        ({"fingerprint": "0" * 40}, "", f"n1: .* has the fingerprint {FIRST}, {SECOND}, not 0000"),
        ({"priority": 600}, "", "n1: a priority without a label"),
        (
            {"priority": 600, "label": "NVIDIA CUDA"},
            "/var/lib/apt/lists/x_InRelease has the label 'site', not 'NVIDIA CUDA'",
            "(?s)n1: http://x/ cannot be used.*has the label 'site'.*nvidia_repository_label",
        ),
        ({"key": "/nowhere/key"}, "", "n1: the key /nowhere/key on the controller cannot be read"),
        (
            {},
            "E: The repository is not signed.",
            "(?s)n1: http://x/ cannot be used.*What to do: find out who signs",
        ),
    ],
)
def test_a_refusal_says_host_cause_and_remedy(args, says, told):
    host = Host()
    host.says = says
    with pytest.raises(AnsibleActionFail, match=told):
        host.task(**args)
    assert host.there == {}


def test_the_priority_is_for_the_label_and_not_for_a_mirrors_host():
    host = Host()
    host.task(priority=600, label="NVIDIA CUDA", url="http://mirror.example.org/nvidia")
    pin = host.there["/etc/apt/preferences.d/x"].decode()
    assert pin == "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ("Origin: NVIDIA\nLabel: NVIDIA CUDA\n", ""),
        ("-----BEGIN PGP SIGNED MESSAGE-----\n\nLabel: site\n", "has the label 'site', not 'NVIDIA CUDA'"),
        ("Origin: site\n", "has the label '', not 'NVIDIA CUDA'"),
    ],
)
def test_lists_with_another_label_are_refused_and_the_files_are_as_before(tmp_path, lists, said):
    (tmp_path / "x_InRelease").write_text(lists)
    source = tmp_path / "x.sources"
    params = {
        "files": {str(source): base64.b64encode(b"Types: deb\n").decode()},
        "refresh": ["apt-get", "update"],
        "trouble": repository.TROUBLE.pattern,
        "trust": [],
        "read": [f"{tmp_path}/x_*Release"],
        "label": "NVIDIA CUDA",
    }
    done = apply(SimpleNamespace(params=params, run_command=lambda *_, **__: (0, "", "")))
    assert (done["refused"], source.exists()) == (bool(said), not said)
    assert done["output"].endswith(said)


LIST = f"""# a comment with {REPOS}/debian12
deb http://mirror.example.org/debian bookworm main
deb [signed-by=/k.gpg] https://{REPOS}/debian12/x86_64/ /
"""
SOURCES = f"""Types: deb
URIs: http://mirror.example.org/debian
Suites: bookworm

# NVIDIA
Types: deb
URIs: http://{REPOS}/debian12/x86_64/
Suites: /
Enabled: yes
"""
REPO = f"""[base]
name={REPOS}
baseurl=http://mirror.example.org
[cuda]
name=cuda
enabled=1
baseurl=https://{REPOS}/rhel9/x86_64
"""


@pytest.mark.parametrize(
    ("path", "text", "gone", "kept"),
    [
        ("a.list", LIST, f"{repository.MARK}deb [signed-by", "\ndeb http://mirror"),
        ("a.sources", SOURCES, f"Enabled: no\nURIs: http://{REPOS}", "Suites: bookworm"),
        ("a.repo", REPO, "[cuda]\nenabled=0\nname=cuda\nbaseurl", "[base]\nname="),
    ],
)
def test_entries_in_the_way_are_switched_off_once(path, text, gone, kept):
    without = repository.switch_off(path, text, [f"https://{REPOS}"])
    assert gone in without
    assert kept in without
    assert "Enabled: yes" not in without
    assert "enabled=1" not in without
    assert repository.switch_off(path, without, [f"https://{REPOS}"]) == without
    assert repository.switch_off(path, text, ["http://elsewhere.example.org"]) == text


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("W: GPG error: NO_PUBKEY A4B469963BF863CC", "7fa2af80 is retired"),
        ("E: The repository 'x' is not signed. NO_PUBKEY 0123456789ABCDEF", "find out who signs"),
        ("E: The repository 'x' does not have a Release file.", "InRelease or Release"),
        ("W: Failed to fetch http://x Could not connect to x:80 (1.2.3.4)", "check that the host reaches"),
        (
            "Curl error (7): Couldn't connect. Error: Cannot download repomd.xml",
            "check that the host reaches",
        ),
        ("certificate verify failed", "ca-certificates"),
        ("something else", "check that the host reaches"),
    ],
)
def test_a_failure_comes_with_its_remedy(said, advice):
    assert advice in repository.repository("apt", OPTIONS).remedy(said)


def test_every_system_has_a_key_with_a_fingerprint():
    fingerprints = signers("nvidia")["keys"]
    assert set(nvidia_keys().values()) == set(fingerprints)
    known = {name: fingerprint for name, fingerprint in fingerprints.items() if fingerprint}
    # Only the last eight digits of RHEL 10's key are published.
    assert set(fingerprints) - set(known) == {"CDF6BA43.pub"}
    for name, fingerprint in known.items():
        assert repository.fingerprint(fingerprint) == fingerprint
        assert fingerprint.endswith(name.removesuffix(".pub").upper())


@pytest.mark.parametrize("name", ["elrepo", "container_toolkit"])
def test_other_keys_have_whole_fingerprints(name):
    assert repository.fingerprint(signers(name)["fingerprint"])


UBUNTU = {"distribution": "Ubuntu", "distribution_version": "22.04", "architecture": "aarch64"}
ROCKY = {"distribution": "Rocky", "distribution_major_version": "9", "architecture": "x86_64"}
MIRROR = "https://mirror.example/repos"


@pytest.mark.parametrize(
    ("facts", "changes", "place", "key", "ending"),
    [
        (UBUNTU, {}, "ubuntu2204/sbsa", "ubuntu2204/sbsa/3bf863cc.pub", "63CC"),
        (ROCKY, {}, "rhel9/x86_64", "rhel9/x86_64/D42D0685.pub", "0685"),
        (ROCKY, {"folder": "debian13/x86_64"}, "debian13/x86_64", "debian13/x86_64/8793F200.pub", "F200"),
        (ROCKY, {"folder": "nowhere1/x86_64"}, "nowhere1/x86_64", "", ""),
        # A key of one's own is not NVIDIA's.
        (ROCKY, {"key_url": f"{MIRROR}/my.pub"}, "rhel9/x86_64", "my.pub", ""),
        (ROCKY, {"key_url": f"{MIRROR}/my.pub", "fingerprint": "AB"}, "rhel9/x86_64", "my.pub", "AB"),
    ],
)
def test_nvidias_repository_of_a_host_and_its_key(facts, changes, place, key, ending):
    options = {"url": f"{MIRROR}/", "folder": "", "key_url": "", "fingerprint": "", **changes}
    repository = plan_nvidia_repository(**options, facts=facts)
    assert repository["place"] == f"{MIRROR}/{place}"
    assert repository["key"] == (f"{MIRROR}/{key}" if key else "")
    assert repository["fingerprint"][-4:] == ending
