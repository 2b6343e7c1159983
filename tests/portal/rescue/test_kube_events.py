"""The reasons of the Events about steps: CamelCase, for every action and every end of a step."""

import re

from kcover import actions
from kcover_portal.rescue.engine import kube_events


def test_reasons_are_camel_case() -> None:
    named = [f"{spec.event_reason}{end}" for spec in actions.ACTIONS.values() for end in kube_events.ENDS.values()]
    assert [reason for reason in named if not re.fullmatch(r"Rescue([A-Z][a-z]+)+", reason)] == []
    assert len(set(named)) == len(named)
