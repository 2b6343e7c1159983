"""The migration pages name only commands, settings, packs and paths that exist."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class
from django.urls import Resolver404, resolve

from agents import config
from kcover.sources.settings import KINDS
from kcover_portal.config import env
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.policies.services import shipped

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "migrate"
PAGES = sorted(FOLDER.glob("*.md"))
SYSTEMS = {"kcover", "konduktor", "autopilot", "kce", "nvsentinel", "gpud"}
COMMAND = re.compile(r"manage\.py ([a-z_]+(?: [^`\n]*)?)")
VARIABLE = re.compile(r"\bKCOVER_[A-Z_]+\b")
ADDRESS = re.compile(r"(?:POST |GET |`)(/api/v1/[a-z/-]+)")
PLACEHOLDERS = {"NAME", "PACK"}


def words(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def commands(page: Path) -> Iterator[list[str]]:
    for found in COMMAND.findall(words(page)):
        yield re.findall(r'"[^"]*"|\S+', found.split(" > ")[0].split("#")[0].rstrip(".),"))


def parser_of(command: str) -> argparse.ArgumentParser:
    return load_command_class(get_commands()[command], command).create_parser("manage.py", command)


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def test_each_system_has_a_page_that_the_index_lists() -> None:
    assert {page.stem for page in PAGES} == {*SYSTEMS, "README"}
    assert all(f"({name}.md)" in words(FOLDER / "README.md") for name in SYSTEMS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_parts_of_a_page_are_there(page: Path) -> None:
    if page.stem in SYSTEMS:
        titles = ["What maps to what", "Differences that you will notice", "Side by side", "Switch", "The way back"]
        assert re.findall(r"^## (.*)$", words(page), re.MULTILINE) == titles
        assert "acted_on_by=" in words(page)
    assert len(words(page).split()) <= 1_300


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_can_be_given(page: Path) -> None:
    for name, *rest in commands(page):
        parser = parser_of(name)
        if verbs := subparsers(parser):
            if not rest:
                continue
            assert rest[0] in verbs, (name, rest)
            parser = verbs[rest[0]]
        known = {option for action in parser._actions for option in action.option_strings}
        assert {word for word in rest if word.startswith("-")} <= known, (name, rest)
        if [name, *rest[:1]] == ["cluster", "set"]:
            keys = {word.partition("=")[0] for word in rest[2:] if "=" in word and not word.startswith('"')}
            assert keys <= set(cluster_settings.SETTINGS), keys
        if [name, *rest[:1]] == ["policy", "install"]:
            assert rest[1] in {*shipped.PACKS, *PLACEHOLDERS}
        if [name, *rest[:1]] == ["source", "add"]:
            assert rest[rest.index("--kind") + 1] in KINDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_variables_packs_and_addresses_exist(page: Path) -> None:
    text = words(page)
    known = {variable.name for variable in env.VARIABLES} | {
        name for names, _ in config.SETTINGS.values() for name in names
    }
    assert set(VARIABLE.findall(text)) <= known
    assert set(re.findall(r"pack `([a-z]+)`", text)) <= set(shipped.PACKS)
    for address in ADDRESS.findall(text):
        try:
            resolve(address.rstrip("/"))
        except Resolver404:
            pytest.fail(address)
