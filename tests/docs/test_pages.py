"""The documentation as a whole: links lead somewhere, pages stay short, commands exist."""

import re
from pathlib import Path

import pytest
from django.core.management import get_commands

from kcover.decisions import guards
from kcover_portal.fleet.services import cluster_settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
COMMAND = re.compile(r"manage\.py ([a-z_]+)")
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- not run.*-->")  # for the tests; no page shows it
FIVE_MINUTES = 1_300  # words
TABLES = {"settings.md"}


def anchors(file: Path) -> set[str]:
    """The fragments of a page's headings, as GitHub makes them."""
    text = BLOCK.sub("", file.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in HEADING.findall(text)}


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(file: Path) -> None:
    for target in LINK.findall(BLOCK.sub("", file.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        found = (file.parent / path).resolve() if path else file
        assert found.exists(), target
        assert not fragment or fragment in anchors(found), target


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_commands_exist(file: Path) -> None:
    assert set(COMMAND.findall(file.read_text(encoding="utf-8"))) <= get_commands().keys()


@pytest.mark.parametrize("file", sorted((ROOT / "docs/operations").rglob("*.md")), ids=lambda file: file.name)
def test_a_page_for_operators_is_read_in_five_minutes(file: Path) -> None:
    shown = MARK.sub("", file.read_text(encoding="utf-8"))
    assert file.name in TABLES or len(shown.split()) <= FIVE_MINUTES


def test_the_index_lists_every_page_for_operators() -> None:
    folder = ROOT / "docs/operations"
    listed = set(LINK.findall((folder / "README.md").read_text(encoding="utf-8")))
    assert {str(page.relative_to(folder)) for page in folder.glob("*/*.md")} <= listed


def test_every_setting_of_a_cluster_is_explained() -> None:
    text = (ROOT / "docs/operations/install/settings.md").read_text(encoding="utf-8")
    assert [name for name in cluster_settings.SETTINGS if f"`{name}`" not in text] == []


def test_every_guard_is_explained() -> None:
    text = (ROOT / "docs/operations/people/safety.md").read_text(encoding="utf-8")
    assert [name for name in guards.to_json(guards.Settings()) if f"`{name}" not in text] == []


def test_the_glossary_stays_short() -> None:
    """A term is for an idea that the field has no word for. A new one takes the place of an old one."""
    own, _, _ = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## Chinese terms")
    assert len(re.findall(r"^\| (?!term |-)", own, re.MULTILINE)) <= 130
