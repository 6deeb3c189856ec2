"""What every task keeps to."""

from __future__ import annotations

import re
from collections import Counter

from tests.contract import tree

TASKS = list(tree.tasks())


def test_every_task_has_a_name() -> None:
    assert not [(place, task) for place, task in TASKS if not task.get("name")]


def test_handlers_are_unique() -> None:
    names = Counter()
    for place, task in TASKS:
        if "/handlers/" in place:
            names.update({str(task["name"]): 1} | {topic: 1 for topic in [task.get("listen")] if topic})
    assert not [name for name, count in names.items() if count > 1], "of two handlers of a name only one runs"


def test_every_notified_handler_exists() -> None:
    handlers = {task["name"] for place, task in TASKS if "/handlers/" in place}
    for place, task in TASKS:
        notified = task.get("notify") or []
        for name in [notified] if isinstance(notified, str) else notified:
            assert name in handlers, f"{place}: no handler is called {name!r}"


def test_no_error_is_ignored() -> None:
    assert not [place for place, task in TASKS if "ignore_errors" in task or "ignore_unreachable" in task]


def test_no_shell() -> None:
    shells = [
        (place, task["name"]) for place, task in TASKS if {"ansible.builtin.shell", "shell"} & set(task)
    ]
    assert not shells, "use ansible.builtin.command with argv"


def test_systemd_reads_units_again_only_where_hvlab_wrote_one() -> None:
    """It takes the GPUs from running containers, with older releases of NVIDIA's toolkit."""
    for place, task in TASKS:
        service = task.get("ansible.builtin.systemd_service", {})
        if "daemon_reload" in service:
            units = tree.ROOT.joinpath(place).parents[1] / "templates/etc/systemd/system"
            unit = service["name"] if "." in service["name"] else f"{service['name']}.service"
            assert list(units.glob(f"{unit}*")), f"{place}: {task['name']}"


def test_what_is_written_below_etc_is_recorded() -> None:
    """`hvlab remove` takes away what hvlab_files and hvlab_repository recorded."""
    for place, task in TASKS:
        for module in ("template", "copy", "get_url", "lineinfile", "blockinfile"):
            to = str((task.get(f"ansible.builtin.{module}") or {}).get("dest", ""))
            assert not to.startswith("/etc/"), f"{place}: {task['name']}: use hvlab_files"


def test_commands_are_argv_lists() -> None:
    for place, task in TASKS:
        command = task.get("ansible.builtin.command")
        if command is not None:
            argv = isinstance(command, dict) and "argv" in command
            assert argv, f"{place}: {task['name']}: give argv"


def test_the_catalogue_alone_names_packages() -> None:
    wired = (tree.ROOT / "group_vars/all.yml").read_text("utf-8")
    names = {text for _, task in TASKS for text in tree.texts(task.get("hvlab_packages", {}).get("name"))}
    assert len(names) > 20
    assert not [name for name in names if "{{" not in name]
    assert not re.search(r"packages: \[\w", wired)


def test_downloads_are_checked() -> None:
    for place, task in TASKS:
        download = task.get("ansible.builtin.get_url")
        if download is not None:
            assert "checksum" in download, f"{place}: {task['name']} has no checksum"


def test_private_keys_are_not_logged() -> None:
    secret = re.compile(r"lookup\(.*(id_ed25519|host_ca|user_ca|password|secret|token)(?!\S*\.pub)")
    for place, task in TASKS:
        own = {key: value for key, value in task.items() if key not in ("block", "rescue", "always")}
        if any(secret.search(text) for text in tree.texts(own)):
            assert "no_log" in task, f"{place}: {task['name']} handles a secret without no_log"


def test_plays_of_roles_hold_nothing_else() -> None:
    for path in tree.playbooks():
        for play in tree.load(path) or []:
            assert not ("roles" in play and "tasks" in play), f"{path.name}: put the tasks into a role"
