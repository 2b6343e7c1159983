"""Runs management commands in one process, which imports Django once.

Each line of standard input is a JSON list of commands. The answer is a line of JSON: what each command printed.
"""

import io
import json
import sys

import django
from django.core.management import call_command
from django.db import connections

django.setup()


def run(command: list[str]) -> str:
    """One command, as if typed."""
    out = io.StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


for line in sys.stdin:
    printed = [run(command) for command in json.loads(line)]
    connections.close_all()
    print(json.dumps(printed), flush=True)
