"""Files and packs that are right already: what the facts show of them, and that nothing is written then."""

import json
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.module_utils import hvlab_managed
from ansible.module_utils.testing import patch_module_args
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from hvlab.ansible.action.hvlab_files import are_as_desired, bring
from hvlab.ansible.module_utils.hvlab_managed import RECORD
from hvlab.ansible.modules import hvlab_files

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def items(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    """Desired states of every kind, as they were brought about and recorded."""
    (tmp_path / "block").write_text("a line of somebody else\n")
    wanted = [
        {"path": str(tmp_path / "d"), "state": "directory", "mode": "0750"},
        {"path": str(tmp_path / "f"), "content": "text é\n", "mode": "0640", "owner": ME},
        {"path": str(tmp_path / "s"), "secret": "a key\n"},
        {"path": str(tmp_path / "block"), "block": "ours", "drop": "^old", "above": "^a line"},
        {"path": str(tmp_path / "l"), "state": "link", "src": "d"},
        {"path": str(tmp_path / "gone"), "state": "absent"},
    ]
    given = {"files": wanted, "record": str(tmp_path / "record")}
    with patch_module_args(given), pytest.raises(SystemExit):
        hvlab_files.main()
    capsys.readouterr()
    return wanted


def states(folder: Path) -> dict[str, dict[str, object]]:
    return hvlab_managed.files(str(folder / "record"))


def test_the_facts_show_that_all_is_right_and_no_secret(items: list[dict[str, str]], tmp_path: Path) -> None:
    assert are_as_desired(items, states(tmp_path))
    assert "a key" not in json.dumps(states(tmp_path))


def test_what_the_facts_do_not_show_is_not_right(items: list[dict[str, str]], tmp_path: Path) -> None:
    assert not are_as_desired([*items, {"path": str(tmp_path / "new"), "state": "absent"}], states(tmp_path))
    assert not are_as_desired(items, {})


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "f").write_text("other\n"),
        lambda folder: (folder / "f").chmod(0o644),
        lambda folder: (folder / "s").unlink(),
        lambda folder: (folder / "s").chmod(0o640),
        lambda folder: (folder / "block").write_text("# BEGIN hvlab\nours\n"),
        lambda folder: (folder / "block").write_text("# BEGIN hvlab\nours\n# END hvlab\nold line\n"),
        lambda folder: (folder / "block").write_text("# BEGIN hvlab\ntheirs\n# END hvlab\n"),
        lambda folder: (folder / "d").chmod(0o700),
        lambda folder: (folder / "gone").touch(),
        lambda folder: ((folder / "l").unlink(), (folder / "l").symlink_to("f")),
        lambda folder: ((folder / "f").unlink(), (folder / "f").symlink_to("s")),
        lambda folder: ((folder / "f").unlink(), os.mkfifo(folder / "f")),
    ],
)  # fmt: skip
def test_damage_shows(items: list[dict[str, str]], tmp_path: Path, damage: object) -> None:
    damage(tmp_path)
    assert not are_as_desired(items, states(tmp_path))


def test_another_owner_shows(items: list[dict[str, str]], tmp_path: Path) -> None:
    item = items[1] | {"owner": "nobody" if ME != "nobody" else "root"}
    assert not are_as_desired([item], states(tmp_path))


def test_a_file_that_was_never_loaded_counts_as_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where a playbook was killed between the file and its handler."""
    (tmp_path / "pid").touch()
    os.utime(tmp_path / "pid", (1, 1))
    files = [{"path": str(tmp_path / "f"), "content": "text\n", "loaded": str(tmp_path / "pid")}]

    def bring() -> dict[str, object]:
        given = {"files": files, "record": str(tmp_path / "record")}
        with patch_module_args(given), pytest.raises(SystemExit):
            hvlab_files.main()
        return json.loads(capsys.readouterr().out)

    assert bring()["changed"]
    written = (tmp_path / "f").stat().st_mtime
    assert not are_as_desired(files, states(tmp_path))
    again = bring()
    assert (again["changed"], again["paths"]) == (True, [str(tmp_path / "f")])
    assert (tmp_path / "f").stat().st_mtime == written
    (tmp_path / "pid").touch()
    assert are_as_desired(files, states(tmp_path))
    assert not bring()["changed"]
    (tmp_path / "pid").unlink()
    assert are_as_desired(files, states(tmp_path)), "the daemon is not there, and reads it when it starts"


def test_texts_and_paths_come_from_templates(tmp_path: Path) -> None:
    for name, text in (("f.j2", "{% if name %}\n{{ name }}\n{% endif %}\n"), ("broken.j2", "{{ nobody }}")):
        (tmp_path / name).write_text(text)
    loader, sent = DataLoader(), {}
    action = SimpleNamespace(
        _find_needle=lambda folder, name: str(tmp_path / Path(name).name) if folder == "templates" else None,
        _loader=loader,
        _templar=Templar(loader, {"name": r"a\n"}),
        _execute_module=lambda **given: sent.update(given) or {},
    )
    items = [
        {"template": "etc/f.j2", "mode": "0600"},
        {"template": "etc/f.j2", "path": "/other"},
        {"block_template": "etc/f.j2", "drop": "^old"},
        {"template": "etc/broken.j2", "state": "absent"},
    ]
    bring(action, items, {})
    assert sent["module_args"]["record"] == RECORD, "without role preflight, too"
    assert sent["module_args"]["files"] == [
        {"path": "/etc/f", "content": "a\\n\n", "mode": "0600"},
        {"path": "/other", "content": "a\\n\n"},
        {"path": "/etc/f", "block": "a\\n\n", "drop": "^old"},
        {"path": "/etc/broken", "state": "absent"},
    ]
