"""Helm's commands and values in the documentation are ones that the chart takes."""

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from tests.deploy import chart
from tests.deploy.chart import LEAST, render
from tests.deploy.manifests import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = [
    (page.name, command.replace("\\\n", " "))
    for page in PAGES
    for command in re.findall(r"(?m)^ *`?(helm install (?:[^\n`]*\\\n)*[^\n`]+)", page.read_text(encoding="utf-8"))
]
INSTALL = ROOT / "docs" / "operations" / "install" / "install.md"
CHART_PAGE = ROOT / "docs" / "operations" / "install" / "chart.md"
PODS_PAGE = CHART_PAGE.with_name("pods.md")


def documented_values() -> dict[str, Any]:
    """The file values.yaml of install.md."""
    [text] = re.findall(r"```yaml\n(.+?)```", INSTALL.read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(text.replace("REGISTRY", "registry.example.com"))
    return found


def test_the_documentation_has_commands() -> None:
    assert {page for page, _ in COMMANDS} == {"README.md", "install.md", "agents.md", "chart.md"}


@pytest.mark.parametrize("command", [command for _, command in COMMANDS])
def test_a_command_installs_something(command) -> None:
    _, _, name, path, *words = shlex.split(
        command.replace("REGISTRY", "registry.example.com").replace("HOST", "gpu.example.com")
    )
    assert Path(ROOT, path, "Chart.yaml").exists()
    values = documented_values() if "-f" in words else {}
    namespace = words[words.index("-n") + 1]
    for option, word in itertools.pairwise(words):
        if option == "--set":
            values = merged(values, helm_python.parse_set_string(word))
    assert {one["kind"] for one in render(values, name=name, namespace=namespace)} & {"DaemonSet", "Deployment"}


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return one | {
        key: merged(one.get(key, {}), value) if isinstance(value, dict) else value for key, value in other.items()
    }


def test_values_that_the_page_names_exist() -> None:
    """In its tables, a value is a name of small letters before a colon, or one with a dot."""
    known = set(paths(chart.defaults()))
    rows = [line for line in CHART_PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    named = {name for line in rows for name in re.findall(r"`([a-zA-Z]+(?:\.[a-zA-Z]+)+)", line)} - {"jobs.KIND"}
    assert named
    assert named <= known, named - known
    section = CHART_PAGE.read_text(encoding="utf-8").split("## Rights by feature")[1].split("##")[0]
    switches = {
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert switches == set(chart.defaults()["features"]) - {
        "jobs",
        "rebootJobPolicy",
        "rebootJobImage",
        "pairTestPolicy",
        "pairTestImage",
        "pairTestDevices",
        "pairTestsOnControlPlanes",
        "jobChangePolicy",
        "nodeChangePolicy",
        "kubeletPolicy",
    }


def test_values_of_the_page_about_pods_exist_and_its_blocks_are_taken() -> None:
    page = PODS_PAGE.read_text(encoding="utf-8")
    heads = {path.partition(".")[0] for path in paths(chart.defaults())}
    named = {name for name in re.findall(r"`([a-zA-Z]+(?:\.[a-zA-Z]+)*)`", page) if name.partition(".")[0] in heads}
    assert len(named) > 20
    assert named <= set(paths(chart.defaults()))
    for block in re.findall(r"```yaml\n(.+?)```", page, re.DOTALL):
        assert render(merged(dict(LEAST), yaml.safe_load(block)))


def paths(values: dict[str, Any], before: str = "") -> list[str]:
    """Every key of the values, with the keys that it is in."""
    found = []
    for key, value in values.items():
        found += [f"{before}{key}", *(paths(value, f"{before}{key}.") if isinstance(value, dict) else ())]
    return found


def test_the_kubectl_commands_name_objects_of_the_chart() -> None:
    made = {f"{one['kind'].lower()}/{one['metadata']['name']}" for one in render(LEAST)}
    named = re.findall(r"exec (?:-it )?deploy/(\S+)", INSTALL.read_text(encoding="utf-8"))
    assert {f"deployment/{name}" for name in named} <= made
