"""Keys of rows as no page writes them."""

import pytest

from kcover_portal.rescue.models import Rescue
from tests.portal.rescue.world import World


@pytest.mark.parametrize("zeros", ["", "0"])
def test_a_key_with_a_zero_in_front_is_no_error_of_the_server(person, world: World, zeros: str) -> None:
    world.fault(62)
    world.work()
    rescue = Rescue.objects.get()
    sent = {"picked": f"{zeros}{rescue.pk}:{rescue.plan_hash}", "reason": "x", "once": "a"}
    assert person("admin").post("/many/rescues/cancel/", sent).status_code < 500
