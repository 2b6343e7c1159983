"""Runs the management commands given as JSON on standard input in one process; prints what each printed, as JSON."""

import io
import json
import sys

import django
from django.core.management import call_command

django.setup()


def run(command: list[str]) -> str:
    """One command, as if typed."""
    out = io.StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


json.dump([run(command) for command in json.load(sys.stdin)], sys.stdout)
