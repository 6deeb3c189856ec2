"""The documentation says what the code says."""

from __future__ import annotations

import re

import click
import pytest

from hvlab.cli import cli
from tests.contract import tree
from tests.contract.generate import PAGES, commands


@pytest.mark.parametrize("page", PAGES)
def test_generated_page_is_fresh(page: str) -> None:
    written = (tree.ROOT / page).read_text(encoding="utf-8")
    assert written == PAGES[page](), f"{page} is not what the code says: run `make docs`"


def test_every_command_and_option_says_what_it_does() -> None:
    for name, command, _ in commands(cli, "hvlab"):
        assert command.help, f"{name} has no help"
        for option in command.params:
            told = not isinstance(option, click.Option) or option.help
            assert told, f"{name}: {option.name} has no help"


@pytest.mark.parametrize("role", tree.ROLES)
def test_readme_has_a_row_for_the_role(role: str) -> None:
    readme = (tree.ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{role}` \| .+ \|$", readme, re.MULTILINE), (
        f"README.md: the table of roles lacks {role}"
    )


@pytest.mark.parametrize("page", sorted(path.name for path in (tree.ROOT / "docs").glob("*.md")))
def test_readme_links_the_page(page: str) -> None:
    assert f"docs/{page}" in (tree.ROOT / "README.md").read_text(encoding="utf-8")


def test_links_lead_somewhere() -> None:
    for path in tree.files():
        if path.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.relative_to(tree.ROOT)} links {target}: not there"
