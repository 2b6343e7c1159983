"""The entry with the guards' figures before a call that takes work away."""

from datetime import timedelta
from typing import Any

import pytest

from kcover_portal.fleet.models import Node
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.models import Step
from tests import proofs
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db

SLOW = timedelta(seconds=6)  # more than two clocks may differ in a proof


def test_the_figures_before_a_call_are_of_the_last_count() -> None:
    """The API server answers slowly after the guards were counted, and another node leaves service meanwhile."""
    world = World(nodes=3)
    world.refuse_evidence()
    world.fault(62)
    real, slow = world.kube.get_node, []

    def answered(name: str) -> Any:
        if not slow and Step.objects.filter(name="reboot", state="running").exists():
            slow.append(name)
            return real(name)
        if len(slow) == 1:
            slow.append(name)
            world.now += SLOW
            Node.objects.filter(name="gpu-2").update(unschedulable=True)
        return real(name)

    world.kube.get_node = answered
    world.until_reboot_is_asked()
    assert len(slow) == 2
    rescue = world.rescue(NODE)
    entries = list(Entry.objects.filter(rescue=rescue.pk).order_by("sequence"))
    [place] = [n for n, entry in enumerate(entries) if entry.data.get("act") == "reboot"]
    figures, call = entries[place : place + 2]
    assert (figures.verb, call.verb) == ("guard.passed", "reboot.begun")
    assert figures.at == call.at
    assert proofs.broken_claim(rescue) == ""
