"""The command ``kcover-portal``: every command of the portal, also without a checkout."""

import os
import sys
import tomllib
from pathlib import Path

from django.core.management import execute_from_command_line

from kcover_portal.config import version


def main() -> None:
    """Runs the command named by the arguments."""
    if sys.argv[1:] == ["--version"]:
        print(f"kcover-portal {_version()}")
        return
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kcover_portal.settings")
    execute_from_command_line(sys.argv)


def _version() -> str:
    """The version of the installed portal; in a checkout, that of its pyproject.toml."""
    if (found := version.installed()) is not None:
        return found
    project = Path(__file__).parents[1] / "pyproject.toml"
    return f"{tomllib.loads(project.read_text(encoding='utf-8'))['project']['version']} (source)"


if __name__ == "__main__":
    main()
