"""Runs the ledger commands on all records in one process; prints the problems and the engine's steps as JSON.

``{"chains": "", "rescues": {"1": ""}, "proofs": {"1": ""}, "steps": ["cordon"]}``: an empty text means no problem.
"""

import io
import json
import sys

import django
from django.core.management import CommandError, call_command

django.setup()

from kcover_portal.rescue.actions.registry import ACTIONS  # noqa: E402 - Django must be set up first
from kcover_portal.rescue.models import Rescue  # noqa: E402
from tests import proofs  # noqa: E402


def wrong(*command: str) -> str:
    """What a command printed if it failed."""
    out = io.StringIO()
    try:
        call_command(*command, stdout=out)
    except CommandError as error:
        return f"{error}: {out.getvalue().strip()}"
    return ""


json.dump(
    {
        "chains": wrong("ledger", "verify"),
        "rescues": {
            str(pk): wrong("ledger", "replay", "--rescue", str(pk))
            for pk in Rescue.objects.values_list("pk", flat=True)
        },
        "proofs": {str(rescue.pk): proofs.broken_claim(rescue) for rescue in Rescue.objects.all()},
        "steps": sorted(ACTIONS),
    },
    sys.stdout,
)
