"""What stands in the tree, and what must not stand anywhere in it."""

from __future__ import annotations

import configparser
import re
import stat

from tests.contract import tree

TOP = {
    "playbooks", "roles", "group_vars", "inventory", "hvlab", "templates", "tests", "ansible.cfg", "setup.py",
    "hvlab_horovod", "site.yml", "pyproject.toml", "Makefile", "README.md", "README.zh.md", "CHANGELOG.md",
    "CONTRIBUTING.md", "LICENSE", "mkdocs.yml",
    "docs", "benchmarks", "requirements", ".ci", ".gitignore", ".yamllint", ".ansible-lint",
}  # fmt: skip
# Joined here, so that this file does not hold what it looks for.
FORBIDDEN = {
    "trust is never switched off": r"StrictHostKeyChecking[ =]+\"?(no|off|accept-new)\b",
    "Ansible checks host keys": r"host_key_checking\s*[=:]\s*(false|no|0)",
    "host keys are never thrown away": "KnownHostsFile" + r"[ =]+\"?/dev/null",
    "no package registry is named": "|".join(
        re.escape(".".join(parts))
        for parts in (
            ("deb", "debian", "org"), ("security", "debian", "org"), ("snapshot", "debian", "org"),
            ("archive", "ubuntu", "com"), ("ports", "ubuntu", "com"), ("security", "ubuntu", "com"),
            ("pypi", "org"), ("files", "pythonhosted", "org"),
        )
    ),
    "a command is no shell string": "shell" + "=True",
}  # fmt: skip


def _lines() -> list[tuple[str, str]]:
    found = []
    for path in tree.files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        # A patch has to name what it takes away.
        kept = [line for line in text.splitlines() if not (path.suffix == ".patch" and line.startswith("-"))]
        found += [(str(path.relative_to(tree.ROOT)), line) for line in kept]
    return found


def test_top_level_holds_only_what_belongs_there() -> None:
    observed = {path.name for path in tree.ROOT.iterdir() if not path.name.endswith(".egg-info")} - {
        *tree.NOT_OURS,
        "results",
    }
    assert observed == TOP


def test_nothing_forbidden_stands_anywhere() -> None:
    lines = _lines()
    for rule, pattern in FORBIDDEN.items():
        wrong = [
            f"{place}: {line.strip()}" for place, line in lines if re.search(pattern, line, re.IGNORECASE)
        ]
        wrong = [line for line in wrong if not line.startswith("tests/contract/test_tree.py")]
        assert not wrong, f"{rule}:\n" + "\n".join(wrong)


def test_no_private_key_is_in_the_tree() -> None:
    marker = "-----BEGIN" + " .*PRIVATE KEY"
    assert not [place for place, line in _lines() if re.search(marker, line)]


def test_no_trailing_space() -> None:
    # Patches need theirs; pages of HTML are as hvlab wrote them.
    written = (".patch", ".html")
    assert not [place for place, line in _lines() if line != line.rstrip() and not place.endswith(written)]


def test_ansible_keeps_to_what_survives() -> None:
    config = configparser.ConfigParser(interpolation=None)
    config.read(tree.ROOT / "ansible.cfg")
    assert config["defaults"].getboolean("host_key_checking")
    assert not config["defaults"].getboolean("inject_facts_as_vars")
    assert config["defaults"]["duplicate_dict_key"] == "error"
    assert config["inventory"].getboolean("any_unparsed_is_failed")
    assert config["ssh_connection"].getboolean("pipelining")
    arguments = config["ssh_connection"]["ssh_args"]
    for part in ("StrictHostKeyChecking=yes", "ServerAliveInterval=", "ControlPersist="):
        assert part in arguments, f"ansible.cfg: ssh_args lacks {part}"


def test_programs_are_executable() -> None:
    for path in tree.files():
        if "ansible" in path.parts:  # Ansible reads a module's first line, and runs a copy
            continue
        with path.open("rb") as file:
            program = file.read(2) == b"#!"
        executable = bool(path.stat().st_mode & stat.S_IXUSR)
        place = path.relative_to(tree.ROOT)
        assert program == executable, f"{place}: a first line #! and mode +x go together"


def test_an_inventory_is_its_hosts_and_one_file_of_variables() -> None:
    for folder in (tree.ROOT / "inventory").iterdir():
        files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert files == {"hosts.yml", "group_vars/all.yml"}


def test_every_playbook_gets_the_wiring() -> None:
    assert (tree.ROOT / "playbooks/group_vars").resolve() == tree.ROOT / "group_vars"
