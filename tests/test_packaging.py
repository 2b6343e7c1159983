"""The contents of a wheel: every file that the running programs read, wherever it is in the checkout."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = ("kcover", "agents", "kcover_portal", "simulator")


def beside() -> tuple[str, ...]:
    """The folders at the root that setup.py puts into the package."""
    for statement in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and [ast.unparse(one) for one in statement.targets] == ["BESIDE"]:
            return ast.literal_eval(statement.value)
    raise AssertionError("setup.py names no BESIDE")


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def test_every_file_that_is_no_code_is_of_a_kind_that_is_packed() -> None:
    [patterns] = PROJECT["tool"]["setuptools"]["package-data"].values()
    for name in (*PACKAGES, *beside()):
        for path in files(ROOT / name):
            packed = path.suffix == ".py" or any(path.match(pattern) for pattern in patterns)
            assert packed, f"add *{path.suffix} to package-data in pyproject.toml: {path}"
            assert not any("." in part for part in path.relative_to(ROOT).parts[:-1]), f"a folder with a dot: {path}"


def test_every_folder_with_code_is_a_package() -> None:
    for name in PACKAGES:
        for path in files(ROOT / name):
            assert path.suffix != ".py" or (path.parent / "__init__.py").exists(), path


def test_folders_that_the_settings_read_are_packed() -> None:
    assert set(beside()) == {"templates", "static", "locale", "deploy"}
    assert all((ROOT / name).is_dir() for name in beside())


def pins(name: str) -> dict[str, str]:
    """The versions by normalised name (PEP 503)."""
    found = re.findall(
        r"^([\w.-]+)(?:\[[\w,]+\])?==([^\s;\\]+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE
    )
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in found}


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("requirements.lock", ["requirements.txt"]),
        ("requirements-agent.lock", ["agents/requirements.txt"]),
        ("requirements-extras.lock", ["requirements-otel.txt", "requirements-sentry.txt", "requirements.lock"]),
        ("requirements-dev.lock", ["requirements.txt", "requirements-dev.txt", "requirements-extras.lock"]),
    ],
)
def test_a_lock_has_every_requirement_as_pinned_with_hashes(lock: str, wanted: list[str]) -> None:
    locked = pins(lock)
    for name in wanted:
        assert pins(name).items() <= locked.items(), "run make lock"
    text = (ROOT / lock).read_text(encoding="utf-8")
    blocks = re.split(r"^(?=[\w.-]+(?:\[[\w,]+\])?==)", text, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in block for block in blocks)
