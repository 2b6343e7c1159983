"""The commands of every page, in the order of their page.

Management commands and REST calls run as written. ``helm`` renders the chart, ``make`` is a dry run, and paths of
``pytest`` are checked. Programs that no test can run are listed below, with the reason. Above a block whose commands
cannot be run, its page says why: ``<!-- not run: REASON -->``, or of some commands, by their beginning,
``<!-- not run `manage.py driver test`: REASON -->``.
"""

import argparse
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml
from django.core.management import CommandError, get_commands, load_command_class
from django.test import Client
from django.utils import timezone

from kcover_portal.accounts import services as accounts
from kcover_portal.config.oidc_settings import Oidc
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import node_rows
from kcover_portal.kube import connections
from kcover_portal.policies import services as policies
from tests.contract.over_http import kubeconfig
from tests.deploy import chart
from tests.kube_fake import FakeCluster
from tests.portal.rescue.world import CORDON

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted({*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"})
BLOCK = re.compile(r"((?:^ *<!-- not run[^\n]*-->\n)*)^( *)```(\w*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- not run(?: `([^`]+)`)?: (.+) -->")
SHELL = ("", "sh", "bash", "shell")
ASSIGNMENT = re.compile(r"[A-Za-z_]+=\S*")
PYTHON = ("python", ".venv/bin/python")
PROGRAMS = {*PYTHON, "manage.py", "kcover-portal", "kcover-agent.pyz", "make", "curl", "helm", "export"} | {
    *(
        "kubectl",
        "docker",
        "git",
        "sudo",
        "systemctl",
        "celery",
        "pip",
        "psql",
        "openssl",
        ".venv/bin/pip",
        "cd",
        "head",
    )
}

# The files that commands read. The values are those of the page about the installation.
FILES = {
    **dict.fromkeys(("kubeconfig.yaml", "prod.kubeconfig"), kubeconfig("https://127.0.0.1:1", "token")),
    **dict.fromkeys(("policies.yaml", "kce.yaml"), CORDON),
    "secret": "a secret of some length",
    "bmc-password": "a short secret",
    "passphrase": "correct horse battery",
    "kern.log": "",
}


class Block(NamedTuple):
    """A block of a page, without the indentation that it has in a list.

    ``marks``: why commands are not run, by their beginning; "" for all of the block.
    """

    language: str
    text: str
    marks: dict[str, str]


def blocks(page: Path) -> Iterator[Block]:
    for marks, indent, language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        yield Block(language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE), dict(MARK.findall(marks)))


VALUES = next(
    yaml.safe_load(text)
    for language, text, _marks in blocks(ROOT / "docs/operations/install/install.md")
    if language == "yaml" and "host:" in text
)
TYPED = "name:a-secret-that-a-person-types\n" * 9

# Programs that a test cannot run, each with the reason.
ELSEWHERE = {
    "kubectl": "needs a cluster with kubelets, or kinds of jobs that a bare API server lacks",
    "docker": "needs a registry; tests/deploy/test_image.py does the steps of the Dockerfiles",
    "deploy/portal/build.sh": "needs root and Debian's mirror; tests/story/test_image.py starts what it builds",
    "kubelet": "a flag of the kubelet",
    "sudo": "as PostgreSQL's administrator, on the server of the machine",
    "python3": "makes the virtual environment in which the tests run",
    ".venv/bin/pip": "installs what make venv installs",
    "mkdir": "a folder that the portal makes, too",
    "CREATE": "SQL for PostgreSQL, as its administrator",
    "export": "sets variables for the next commands, which the tests set for themselves",
}
# Words that stand for something that a reader chooses.
CHOSEN = {
    "FILE": "prod.kubeconfig",
    "PACK": "nvidia",
    "/var/log/kern.log": "kern.log",
    "tests/portal/rescue/test_actions_NAME.py": "tests/portal/rescue/test_actions_label.py",
}


PROGRAMS |= ELSEWHERE.keys()


class Command(NamedTuple):
    """One command of a page: its words without assignments, a prompt and a comment, and its text.

    ``marked``: why it is not run, as its page says; "" if it is.
    """

    words: list[str]
    text: str
    marked: str

    @property
    def line(self) -> str:
        """Its words, without assignments and comments."""
        return " ".join(self.words)


def lines(block: str) -> Iterator[str]:
    """The lines of a block as a shell reads them: a text in quotes may have several."""
    begun = ""
    for line in block.replace("\\\n", " ").splitlines():
        begun = f"{begun}\n{line}" if begun else line
        if begun.split("#")[0].count("'") % 2 == 0:
            yield begun
            begun = ""


def program_of(text: str) -> str:
    return next((word for word in text.split() if not ASSIGNMENT.fullmatch(word)), "")


def commands(page: Path) -> Iterator[Command]:
    """The commands of the blocks that have commands. Raises ValueError for a line of such a block that is none."""
    for language, block, marks in blocks(page):
        if "" in marks and language in SHELL:
            continue
        texts = [text for line in lines(block) for text in line.split(" && ") if text.strip()]
        if language in SHELL and any(program_of(text) in PROGRAMS for text in texts):
            for text in texts:
                if program_of(text) not in PROGRAMS:
                    raise ValueError(f"{page}: add its program to PROGRAMS: {text}")
                words = shlex.split(text, comments=True)
                while ASSIGNMENT.fullmatch(words[0]):
                    words.pop(0)
                line = " ".join(words)
                why = next((marks[start] for start in marks if line.startswith(start)), "")
                yield Command(words, text.strip(), why)


FOUND = {str(page.relative_to(ROOT)): list(commands(page)) for page in PAGES}
WITH_COMMANDS = [name for name, found in FOUND.items() if found]


def reason_of(command: Command) -> str | None:
    """Why a command is not run."""
    return ELSEWHERE.get(command.words[0]) or command.marked or None


def test_the_reasons_are_of_commands_that_exist() -> None:
    texts = [command.text for found in FOUND.values() for command in found]
    assert {word for word in ELSEWHERE if not any(text.split()[0] == word for text in texts)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_mark_is_above_a_block_with_what_it_names(page: Path) -> None:
    named = [(start, block.text) for block in blocks(page) for start in block.marks]
    assert [start for start, text in named if start not in text] == []
    assert len(named) == page.read_text(encoding="utf-8").count("<!-- not run")


@pytest.mark.django_db
@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_of_a_page_run_as_written(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.KCOVER_AUDIT_FOLDER = tmp_path
    settings.EMAIL_HOST = "mail.example.com"
    settings.KCOVER_OWN_ENCRYPTION_KEY = tmp_path / "encryption_key"
    settings.KCOVER_OIDC = Oidc(
        issuer="https://id.example.com", client_id="kcover", portal="https://portal.example.com"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(TYPED))
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "var").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    uninstall = installation(" ".join(command.text for command in FOUND[page]))
    failed = []
    for command in FOUND[page]:
        if reason_of(command) is None:
            try:
                run(command.words)
            except (Exception, SystemExit) as error:
                failed.append(f"{command.text}: {type(error).__name__} {error}")
    for undo in uninstall:
        undo()
    assert failed == []


def installation(texts: str) -> list[Callable[[], None]]:
    """What the commands expect: the clusters that they do not add themselves, with a node, a user and a policy."""
    now, undo = timezone.now(), []
    # With a second cluster, a command that needs one must name it.
    manage(["cluster", "add", "another", "--kubeconfig", "prod.kubeconfig"])
    for name in ("prod", "east", "management"):
        if re.search(rf"\b{name}\b", texts) and f"cluster add {name}" not in texts:
            kube = FakeCluster()
            for node in ("gpu-7", "gpu-17"):
                kube.add_node(node, gpus=8)
            row = Cluster.objects.create(name=name, created_at=now, kubeconfig=FILES["prod.kubeconfig"])
            undo.append(connections.install(row.pk, kube))
            node_rows.sync_list(row, kube.list_nodes().items, now=now)
    if "user create anna" not in texts:
        accounts.make_user("anna", password="correct horse battery", role="admin", created_by="test", now=now)
    for revision in range(1, 5):
        policies.apply(
            CORDON.replace("cordon}\n", "training}\n").replace("10", f"{revision}"), author="t", reason="", now=now
        )
    return undo


def run(words: list[str]) -> None:
    program, *rest = [CHOSEN.get(word, word) for word in words]
    if program in PYTHON and rest[:1] == ["manage.py"]:
        program, rest = "manage.py", rest[1:]
    if program in ("manage.py", "kcover-portal"):
        manage(rest)
    elif program == "make":
        subprocess.run(["make", "-n", *rest], cwd=ROOT, check=True, capture_output=True)
    elif program == "helm":
        helm(rest)
    elif program == "curl":
        curl(rest)
    elif rest[:2] == ["-m", "pytest"]:
        assert all((ROOT / word.partition("::")[0]).exists() for word in rest[2:] if "/" in word)
    elif program == "kcover-agent.pyz":
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-m", "agents", *rest], env=environment, check=True, capture_output=True)
    else:
        raise AssertionError("no way to run it: say so above its block, with the reason")


def manage(words: list[str]) -> None:
    """What ``manage.py`` does with these words, in this process."""
    if ">" in words:
        words, target = words[: words.index(">")], Path(words[words.index(">") + 1])
    else:
        target = Path("output")
    name, *rest = words
    command = load_command_class(get_commands()[name], name)
    options = vars(command.create_parser("manage.py", name).parse_args(rest))
    with target.open("w", encoding="utf-8") as written, redirect_stdout(written):
        command.execute(*options.pop("args", ()), **options)


def helm(words: list[str]) -> None:
    """Renders the chart, as ``helm install NAME CHART`` does first."""
    assert words[0] == "install"
    assert words[2] == "deploy/chart"
    values: dict[str, Any] = {}
    namespace = words[words.index("-n") + 1]
    for option, given in itertools.pairwise(words):
        if option == "-f":
            values |= VALUES
        elif option == "--set":
            path, _, text = given.partition("=")
            *above, last = path.split(".")
            place = values
            for key in above:
                place = place.setdefault(key, {})
            place[last] = yaml.safe_load(text)
    assert chart.render(values, name=words[1], namespace=namespace)


def curl(words: list[str]) -> None:
    """The same request to the portal, with the token of an admin."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-X", dest="method", default="GET")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="body", default="")
    given = parser.parse_args(words)
    headers = dict(header.split(": ", 1) for header in given.headers)
    assert headers.pop("Authorization") == "Bearer $KCOVER_TOKEN"
    token = accounts.make_token("operator", name="curl", created_by="test", now=timezone.now())[1]
    parts = urlsplit(given.url)
    answer = Client().generic(
        given.method,
        f"{parts.path}?{parts.query}",
        given.body.encode(),
        content_type=headers.pop("Content-Type", ""),
        headers=headers | {"Authorization": f"Bearer {token}"},
    )
    assert answer.status_code < 300, (answer.status_code, answer.content)


INLINE = [
    (page.name, code.replace("\n", " "))
    for page in PAGES
    for code in re.findall(r"`(manage\.py [a-z_]+ [^`]*--[^`]*)`", BLOCK.sub("", page.read_text(encoding="utf-8")))
    if not re.search(r"[…\[\]|]", code)  # a synopsis
]


def test_commands_within_a_sentence_have_options_that_exist() -> None:
    assert len(INLINE) > 20
    refused = []
    for page, code in INLINE:
        name, *words = shlex.split(code)[1:]
        parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
        try:
            parser.parse_args(["1" if word == "N" else word for word in words])
        except (SystemExit, CommandError) as error:
            refused.append((page, code, str(error)))
    assert refused == []
