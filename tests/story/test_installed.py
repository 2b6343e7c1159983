"""``kcover-portal serve`` from the wheel, in an empty directory: no file of the checkout is read."""

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.story import product as products
from tests.story.person import Person
from tests.story.product import ROOT, Product

POSTGRES = os.environ.get("KCOVER_DATABASE_URL", "").startswith("postgres")
pytestmark = pytest.mark.skipif(not POSTGRES, reason="needs the PostgreSQL that `make test` starts")
SOURCES = ("kcover", "agents", "kcover_portal", "simulator", "templates", "static", "locale", "deploy")
BUILT_FROM = ("pyproject.toml", "setup.py", "requirements.txt", "README.md", "LICENSE")


class Installed(Product):
    """A product whose programs are those of the wheel in ``site``, started in an empty directory."""

    def __init__(self, folder: Path, *, site: Path, like: Product) -> None:
        super().__init__(folder, database=like.environment["KCOVER_DATABASE_URL"], one_command=True)
        self.directory = folder / "empty"
        self.directory.mkdir()
        self.environment |= {"KCOVER_REDIS_URL": like.environment["KCOVER_REDIS_URL"], "PYTHONPATH": str(site)}
        self.script = str(site / "bin" / "kcover-portal")

    def run(self, *command: str) -> str:
        """Runs a command of the script; returns what it printed."""
        done = subprocess.run(
            [sys.executable, self.script, *command],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def serve(self) -> None:
        """Starts everything, and waits for its answer."""
        with (self.folder / "serve.log").open("ab") as log:
            self.processes["serve"] = subprocess.Popen(
                [sys.executable, self.script, "serve", "--port", str(self.port), "--host", "127.0.0.1"],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait(self._answers, "the installed portal to answer")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed wheel. It is built from a copy, because a build leaves files beside its sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source, site = folder / "source", folder / "site"
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, source / name)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    build = ("wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    subprocess.run([*pip, *build], check=True, timeout=120)
    [wheel] = folder.glob("*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--no-compile", "--target", str(site), wheel],
        check=True,
        timeout=120,
    )
    return site


@pytest.fixture(scope="module")
def installed(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The running portal, with anna and the shipped policies."""
    folder = tmp_path_factory.mktemp("installed")
    with products.on_postgres(folder) as database:
        portal = Installed(folder, site=site, like=database)
        portal.run(*portal.anna())
        portal.run("policy", "defaults")
        try:
            portal.serve()
            yield portal
        finally:
            portal.stop()


def test_pages_with_their_style_in_both_languages(installed: Installed) -> None:
    person = Person(installed)
    page = person.sign_in("anna", products.PASSWORD)
    assets = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
    assert assets
    for path in assets:
        with person.opener.open(installed.url + path, timeout=60) as answer:
            assert answer.status == 200
    chinese = urllib.request.Request(f"{installed.url}/policies/", headers={"Accept-Language": "zh-hans"})
    with person.opener.open(chinese, timeout=60) as answer:
        text = answer.read().decode()
    assert '<html lang="zh-hans"' in text
    assert "策略" in text
    assert "defaults" in text


def test_every_process_runs_where_the_portal_was_started(installed: Installed) -> None:
    assert [path.name for path in installed.directory.iterdir()] == ["var"]
    modules = installed.run("shell", "-v", "0", "-c", "import kcover, kcover_portal; print(kcover_portal.__file__)")
    assert not modules.startswith(str(ROOT))
    log = (installed.folder / "serve.log").read_text()
    assert "Traceback" not in log
    assert "serve: " not in log  # what serve says of a process that ended
