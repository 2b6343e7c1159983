"""``--version`` says the portal's version, without a database and without settings."""

import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_the_command_prints_the_version_of_the_portal() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "kcover_portal", "--version"],
        check=True,
        capture_output=True,
        text=True,
        cwd=PROJECT.parent,
        env={"KCOVER_REDIS_URL": "not used"},
    )
    version = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["version"]
    assert said.stdout.split()[:2] == ["kcover-portal", version]
