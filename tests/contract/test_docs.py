"""The documentation says what the code says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from docs import site
from docs.generate import PAGES, commands
from hvlab.checks.node.xid import XIDS
from hvlab.cli import cli
from tests.contract import tree
from tests.contract.test_imports import LEVELS


def test_generated_pages_hold_all_that_the_code_has() -> None:
    pages = {name: write() for name, write in PAGES.items()}
    assert pages["cli.md"].count("\n## ") == len(list(commands(cli, "hvlab")))
    for role in tree.ROLES:
        assert f"\n## {role}\n" in pages["roles.md"]
        for variable in tree.options(role):
            assert f"\n| `{variable}` | " in pages["roles.md"]
    assert pages["xids.md"].count("\n| ") == len(XIDS) + 2
    faults = json.loads((tree.ROOT / "tests/data/faults.json").read_text("utf-8"))
    for fault in faults:
        assert f"\n| {fault['what']} | `{fault['command']}` | {fault['code']} | " in pages["reliability.md"]


def test_every_command_and_option_says_what_it_does() -> None:
    for name, command, _ in commands(cli, "hvlab"):
        assert command.help, f"{name} has no help"
        for option in command.params:
            told = not isinstance(option, click.Option) or option.help
            assert told, f"{name}: {option.name} has no help"


def test_each_line_on_who_can_do_what_names_the_test_that_shows_it() -> None:
    page = (tree.ROOT / "docs/security.md").read_text(encoding="utf-8")
    table = page.partition("|---|---|---|\n")[2].partition("\n\n")[0]
    for line in table.splitlines():
        named = re.fullmatch(r"\|.*\| `([\w/]+\.py)::(\w+)` \|", line)
        assert named, f"no test is named: {line[:60]}"
        text = (tree.ROOT / "tests" / named[1]).read_text(encoding="utf-8")
        assert f"\ndef {named[2]}(" in text, f"{named[1]} has no {named[2]}"


def test_readme_is_read_in_minutes() -> None:
    for name in ("README.md", "README.zh.md"):
        assert len((tree.ROOT / name).read_text(encoding="utf-8").split()) <= 900, name


@pytest.mark.parametrize("page", sorted(path.name for path in (tree.ROOT / "docs").glob("*.md")))
def test_readme_links_the_page(page: str) -> None:
    assert f"docs/{page}" in (tree.ROOT / "README.md").read_text(encoding="utf-8")


def test_the_picture_of_the_rooms_is_that_of_the_imports() -> None:
    text = (tree.ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    picture = text.partition("```text\n")[2].partition("```")[0]
    assert [set(line.partition("#")[0].split()) for line in picture.splitlines()] == LEVELS[::-1]


def test_places_to_add_something_exist() -> None:
    text = (tree.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("\n## Where to add\n")[2].partition("\n## ")[0]
    for place in re.findall(r"`([\w./-]+/[\w.-]+)`", table):
        known = re.sub(r"/[^/]*[A-Z]{4}.*", "", place)  # up to a name that the reader chooses
        assert any((tree.ROOT / folder / known).exists() for folder in ("", "hvlab")), place


# At the beginning of a line or of code, up to a comment or a column.
CALL = re.compile(r"(?:^ *|`|\$ )(hvlab [a-z][^`\n#|]*)", re.MULTILINE)


def test_commands_and_options_in_the_documentation_exist() -> None:
    options = {}
    for name, command, _ in commands(cli, "hvlab"):
        options[name] = {"--help"}.union(*(option.opts + option.secondary_opts for option in command.params))
    called = set()
    for path in tree.files():
        if path.suffix != ".md" or "data" in path.parts:
            continue
        for call in CALL.findall(path.read_text("utf-8")):
            name = max((name for name in options if f"{call} ".startswith(f"{name} ")), key=len)
            if name == "hvlab":  # a sentence
                continue
            called.add(name)
            flags = set(re.findall(r"(?<= )--[a-z][a-z-]*", call.partition(" -- ")[0]))
            assert flags <= options[name], f"{path.relative_to(tree.ROOT)}: {call}"
    assert called > {"hvlab plan", "hvlab lab up", "hvlab bench"}


def test_links_lead_somewhere() -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in tree.files() if path.suffix == ".md"}
    for path, text in pages.items():
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
            place = (path.parent / target).resolve() if target else path
            link = f"{path.relative_to(tree.ROOT)} links {target}#{anchor}"
            assert place.exists(), f"{link}: not there"
            if anchor and place in pages:
                assert anchor in anchors(pages[place]), f"{link}: no such heading"


def test_the_site_has_every_page_and_link_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    # Strict: a link to nothing, and a page that no menu shows, are errors.
    argv = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(tree.ROOT)}
    done = subprocess.run(argv, cwd=tree.ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?!a\s)\w[^>]*\s(?:src|href)=[\"']?(?:https?:)?//", text), page
    for sheet in tmp_path.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), (
            sheet
        )
    # Else the theme cuts off what does not fit on a line of a table.
    style = tmp_path / site.STYLE
    assert re.search(r"td[^}]*white-space: normal", style.read_text(encoding="utf-8"))
    assert site.STYLE in (tmp_path / "tutorials" / "ten-machines.html").read_text(encoding="utf-8")
    assert "Horovod" in (tmp_path / "index.html").read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    """The anchors that hosts of Markdown give its headings: a repeated one gets a number."""
    counts: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        names.add(f"{slug}-{counts[slug]}" if slug in counts else slug)
        counts[slug] = counts.get(slug, 0) + 1
    return names


def test_both_readmes_have_the_same_sections_commands_tables_and_links() -> None:
    english, chinese = (
        (tree.ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md")
    )

    def skeleton(text: str) -> dict[str, list[str]]:
        blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        lines = [line for block in blocks for line in block.splitlines()]
        return {
            "sections": re.findall(r"^#+(?= )", text, re.MULTILINE),
            "commands": [re.split(r"\s+# |  +", line)[0] for line in lines],
            "rows": re.findall(r"^\| (`[^|]+`|\d+|[a-z-]+|\[.*?\]\(.*?\)) \|.*\n(?!\|-)", text, re.MULTILINE),
            "length of tables": [str(text.count("\n|"))],
            "links": sorted(set(re.findall(r"\]\(((?!README)[^)]+)\)", text))),
        }

    assert skeleton(english) == skeleton(chinese)


def test_what_is_written_on_hosts_is_in_the_table() -> None:
    """The templates of roles, and the paths that their tasks spell out."""
    page = (tree.ROOT / "docs/install.md").read_text("utf-8")
    table = page.partition("| on a host |")[2].partition("\n\n")[0]
    named = re.findall(r"`([^`]+)`", table)
    folders = [name if name.startswith("/") else f"/etc/{name}" for name in named]
    roles = tree.ROOT / "roles"
    templates = [str(path) for path in roles.glob("*/templates/**/*.j2")]
    written = ["/" + path.partition("/templates/")[2].removesuffix(".j2") for path in templates]
    for path in [*roles.glob("*/tasks/*.yml"), *roles.glob("*/vars/*.yml")]:
        written += re.findall(r"(?:path|dest): (/(?:etc|opt|usr)/[^\s,}\"]+)", path.read_text("utf-8"))
    for place in written:
        known = place.startswith(
            ("/etc/ansible/facts.d/hvlab_", "/opt/hvlab", "/etc/hvlab", "/home/hvlab/.ssh")
        )
        listed = any(place == one or place.startswith(f"{one}/") for one in folders)
        assert known or listed, f"docs/install.md does not say that {place} is written"
    assert len(written) > 40
