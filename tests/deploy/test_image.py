"""deploy/portal/Dockerfile copies all that the portal needs, and the portal it makes writes nowhere but to /tmp."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.manifests import PODS, ROOT

DOCKERFILES = sorted((ROOT / "deploy").glob("*/Dockerfile"))
AGENT = ROOT / "deploy" / "agent" / "Dockerfile"
MX_SMI = ROOT / "deploy" / "mx-smi" / "Dockerfile"
PORTAL = ROOT / "deploy" / "portal" / "Dockerfile"
BUILD = PORTAL.with_name("build.sh")
# In the image's folder: the modules that processes begin with, all tasks, all addresses, and what lies beside the code.
LOOK = """
import pathlib, sys
from django.core.management import call_command
from kcover_portal import asgi, celery
from kcover_portal.asgi import web
from kcover_portal.operate.management.commands import serve, watch
from kcover_portal.policies.services import shipped
from django.conf import settings
from django.contrib.staticfiles import finders
from django.template.loader import get_template
from django.utils import translation

celery.app.loader.import_default_modules()
call_command("check")
call_command("migrate", plan=True)
assert pathlib.Path(asgi.__file__).is_relative_to(pathlib.Path.cwd()), asgi.__file__
assert not {"agents", "simulator", "tests"} & set(sys.modules)
assert shipped.DEFAULTS.read_text()
assert finders.find("console/console.css")
get_template("console/pages/overview.html")
with translation.override("zh-hans"):
    assert translation.gettext("Nodes") == "节点"
"""


def steps(file, word):
    """The arguments of a Dockerfile's steps of one kind."""
    return re.findall(rf"^{word} (.+)$", file.read_text().replace("\\\n", ""), re.MULTILINE)


def copies(file):
    """(source, target) of each COPY, relative to the checkout and to the working folder."""
    for step in steps(file, "COPY"):
        *sources, target = step.split()
        if sources[0].startswith("--from="):
            continue  # of another image
        for source in sources:
            yield source, f"{target}{source}" if target.endswith("/") else target


def test_packages_are_pinned_and_the_user_is_the_pods():
    (install,) = [step for step in steps(PORTAL, "RUN") if "pip install" in step]
    assert install.endswith("--require-hashes -r ${LOCK}")
    assert "LOCK=requirements.lock" in steps(PORTAL, "ARG")
    (user,) = steps(PORTAL, "USER")
    for pod in PODS.values():
        context = pod["securityContext"]
        assert f"{context['runAsUser']}:{context['runAsGroup']}" == user
        assert context["fsGroup"] == context["runAsGroup"]  # or it could not read the Secret's files


def test_without_docker_the_same_steps_run_on_debians_python():
    """buildah runs the Dockerfile itself, so that only the base can differ."""
    script = BUILD.read_text()
    subprocess.run(["bash", "-n", BUILD], check=True)
    assert "--file deploy/portal/Dockerfile --ignorefile .dockerignore" in " ".join(script.split()).replace(" \\ ", " ")
    (include,) = re.findall(r"--include=(\S+)", script)
    # The Dockerfile calls `python` and its pip, and connects to an index by TLS.
    assert {"python3", "python-is-python3", "python3-pip", "ca-certificates"} == set(include.split(","))
    assert steps(PORTAL, "FROM") == ["${BASE}"]
    assert "BASE=python:3.11-slim" in steps(PORTAL, "ARG")
    assert re.search(r"^  bookworm ", script, re.MULTILINE)  # whose Python is 3.11
    for name in re.findall(r"--build-arg (\w+)=", script):
        assert name in {one.partition("=")[0] for one in steps(PORTAL, "ARG")}, name


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.parent.name)
def test_copied_files_are_not_ignored_by_docker(file):
    first, *lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert first == "*"
    taken = [Path(line.removeprefix("!")) for line in lines if line.startswith("!")]
    for source, _ in copies(file):
        assert any(Path(source).is_relative_to(path) for path in taken), source
    if file == PORTAL:
        assert {str(path) for path in taken} <= {source for one in DOCKERFILES for source, _ in copies(one)}
        assert all((ROOT / source).exists() for source, _ in copies(file))


def test_the_image_contains_the_files_of_the_portal(tmp_path):
    image, elsewhere = tmp_path / "image", tmp_path / "elsewhere"
    image.mkdir()
    elsewhere.mkdir()
    for source, target in copies(PORTAL):
        place = image / target
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, place)
    (folders,) = re.findall(r"install -d -o 10001 -g 10001 -m 755 (.+)", PORTAL.read_text())
    for folder in folders.split():
        (image / folder).mkdir()
    before = sorted(image.rglob("*"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KCOVER_", "PYTHON"))}
    environment |= {
        "DJANGO_SETTINGS_MODULE": "kcover_portal.settings",
        "KCOVER_DATABASE_URL": f"sqlite:///{elsewhere}/db.sqlite3",
        "KCOVER_REDIS_URL": "redis://127.0.0.1:1/0",
        "KCOVER_SECRET_KEY": "only-for-tests-8bdfc9d2a4e64fd6a1f8",
        "PYTHONDONTWRITEBYTECODE": "1",  # the image has its byte code
    }
    ended = subprocess.run(
        (sys.executable, "-c", LOOK),
        cwd=image,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "ledger" in ended.stdout  # the plan
    assert sorted(image.rglob("*")) == before


# The commands that build images


BUILDERS = {
    "docker": {"docker": "true"},
    "docker without a daemon": {"docker": '[ "$1" != info ]', "buildah": "true"},
    "buildah": {"buildah": "true"},
}


@pytest.mark.parametrize("programs", BUILDERS.values(), ids=BUILDERS)
@pytest.mark.parametrize(
    ("goal", "options", "file", "name", "arguments"),
    [
        ("image", ["BASE=python:3.12-slim"], PORTAL, "kcover-portal", {"BASE=python:3.12-slim"}),
        (
            "image-agent",
            ["BASE=ubuntu:24.04", "MX_SMI_IMAGE=m:1"],
            AGENT,
            "kcover-agent",
            {"BASE=ubuntu:24.04", "MX_SMI_IMAGE=m:1"},
        ),
        ("image-agent", [], AGENT, "kcover-agent", set()),
        ("image-mx-smi", [], MX_SMI, "mx-smi", set()),
    ],
)
def test_an_image_is_built_by_docker_or_without_a_daemon_by_buildah(
    tmp_path, programs, goal, options, file, name, arguments
):
    """The builders are stand-ins that write their arguments down."""
    called = tmp_path / "called"
    for program, verdict in programs.items():
        stand_in = tmp_path / program
        stand_in.write_text(
            f"#!/bin/bash\n{verdict} || exit 1\n[ $1 = info ] || printf '%s\\n' {program} \"$@\" >{called}\n"
        )
        stand_in.chmod(0o755)
    for tool in ("bash", "dirname"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    command = ("make", "--dry-run", "--no-print-directory", "REGISTRY=r.example.com", "TAG=2", goal, *options)
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    [line] = re.findall(r"^tools/image\.sh(?:.*\\\n)*.*", printed, re.MULTILINE)
    subprocess.run(["bash", "-c", line], cwd=ROOT, env={"PATH": str(tmp_path)}, check=True)
    words = called.read_text().split()
    assert words[0] == next(program for program in ("buildah", "docker") if program in programs)
    assert words[1] == "build"
    assert words[words.index("--file") + 1] == str(file.relative_to(ROOT))
    assert words[words.index("--tag") + 1] == f"r.example.com/{name}:2"
    assert {words[at + 1] for at, word in enumerate(words) if word == "--build-arg"} == arguments
    assert {one.partition("=")[0] for one in arguments} <= {one.partition("=")[0] for one in steps(file, "ARG")}


def test_without_a_builder_the_message_names_one(tmp_path):
    (tmp_path / "bash").symlink_to(shutil.which("bash"))
    ended = subprocess.run(
        ["bash", "tools/image.sh", "Dockerfile", "x"],
        cwd=ROOT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert "buildah" in ended.stderr


def test_the_agents_file_is_made_of_its_own_packages_only():
    """In a virtual environment that has nothing else, `make agent` installs no other lock."""
    command = ("make", "--dry-run", "--always-make", "agent")
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"--require-hashes -r (\S+)", printed) == ["requirements-agent.lock"]
