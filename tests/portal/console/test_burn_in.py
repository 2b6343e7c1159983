"""The pages of nodes before their first work: what keeps work away, and why no burn-in has begun."""

from collections.abc import Iterator

import pytest
from django.utils import timezone

from kcover import reasons
from kcover.nodes import readiness_taint
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port
from kcover_portal.lib.localization import say
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from tests.portal.console.conftest import Person
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
NEW = "gpu-new"
PAGE = f"/nodes/c1/{NEW}/"
SCHEDULING = "only work that tolerates the taint kcover.io/not-ready"


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World(nodes=1)
    made.now = timezone.now()
    made.kube.add_node(NEW, gpus=8, taints=(port.Taint(*readiness_taint.TAINT),))
    made.sync()
    yield made
    made.uninstall()


def test_the_page_shows_why_no_burn_in_has_begun(world: World, person: Person) -> None:
    viewer = person("viewer")
    shown = viewer.get(PAGE)
    assert shown.context["burn_in_waits"] == say(reasons.of("burn_in_off", cluster="c1"))
    assert SCHEDULING in shown.content.decode()
    Cluster.objects.update(burn_in="tainted")
    assert viewer.get(PAGE).context["burn_in_waits"] == say(reasons.of("burn_in_due"))
    world.kube.set_ready(NEW, False)
    world.sync()
    assert viewer.get(PAGE).context["burn_in_waits"] == say(reasons.of("burn_in_not_ready"))


def test_the_page_of_a_running_burn_in_shows_the_rescue(world: World, person: Person) -> None:
    Cluster.objects.update(burn_in="tainted")
    services.reconcile(now=world.now)
    shown = person("viewer").get(PAGE)
    assert (shown.context["burn_in_waits"], shown.context["rescue"]) == ("", Rescue.objects.get())
    assert person("viewer").get(f"/rescues/{Rescue.objects.get().pk}/").status_code == 200


def test_a_node_without_the_taint_shows_no_burn_in(world: World, person: Person) -> None:
    shown = person("viewer").get("/nodes/c1/gpu-1/")
    assert (shown.context["burn_in_waits"], SCHEDULING in shown.content.decode()) == ("", False)


def test_the_list_marks_and_filters_them(world: World, person: Person) -> None:
    viewer = person("viewer")
    shown = viewer.get("/nodes/?burn_in=true").context["rows"]
    assert [node.name for node, *_ in shown] == [NEW]
    assert len(viewer.get("/nodes/").context["rows"]) == 2
