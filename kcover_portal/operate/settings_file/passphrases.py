"""Asks for the passphrase of a file: the first line of a file, or typed on a terminal."""

import getpass
import sys
from argparse import ArgumentParser
from pathlib import Path

from django.core.management.base import CommandError

from kcover_portal.operate.settings_file.sealed import SHORTEST


def add_argument(parser: ArgumentParser) -> None:
    """Adds the option of the commands."""
    parser.add_argument("--passphrase-file", metavar="FILE", help="its first line is the passphrase; default: ask")


def new(path: str | None) -> str:
    """A passphrase for a new file; one that is typed is asked for twice. Raises CommandError."""
    found = known(path)
    if len(found) < SHORTEST:
        raise CommandError(f"the passphrase must have at least {SHORTEST} characters")
    if not path and getpass.getpass("Repeat the passphrase: ") != found:
        raise CommandError("the passphrases differ")
    return found


def known(path: str | None) -> str:
    """The passphrase of a file that exists. Raises CommandError."""
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").split("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"cannot read the passphrase: {error}") from error
    if not sys.stdin.isatty():
        raise CommandError("there is no terminal to ask for the passphrase; write --passphrase-file FILE")
    return getpass.getpass("Passphrase of the file: ")
