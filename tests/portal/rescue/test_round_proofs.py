"""The proof of a rescue with a second round, and a lie about its end."""

import pytest

from kcover_portal.rescue import services
from kcover_portal.rescue.queries import proof
from tests import forgeries, proofs
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db


def test_a_rescue_that_ended_has_no_second_round(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    world.kube.reboot(NODE)
    world.until("waiting", step="verify")
    world.fault(62)
    world.pass_time()
    services.cancel(world.rescue(), actor="user:ann", reason="", now=world.now)
    statements = proof.unsigned(world.rescue())
    assert proofs.refusal(proofs.sign(statements)) == ""
    links = statements["segment"]["links"]
    again, ended = (
        next(place for place, entry in enumerate(links) if isinstance(entry, dict) and entry.get("verb") == verb)
        for verb in ("step.started_over", "rescue.cancelled")
    )
    links.insert(again, links.pop(ended))
    forgeries.rewrite(statements)
    assert proofs.refusal(proofs.sign(statements)) == "ended"
