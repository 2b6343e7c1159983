"""The number of SQL statements from a fault to the cordon. Each is a round trip (performance)."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services
from tests.portal.rescue.world import CORDON, NODE, World

pytestmark = pytest.mark.django_db

MAX_STATEMENTS = 15  # from the claim of a due incident to the write to its node


def test_a_fault_takes_few_statements_to_its_cordon() -> None:
    world = World(policy=CORDON, nodes=3)
    world.fault(62, node="gpu-2")
    world.work()  # the rules in force are read once
    Incident.objects.update(state=Incident.State.CLOSED)
    world.fault(62)
    due = Incident.objects.get(node__name=NODE, state=Incident.State.OPEN).pk
    real, before = world.kube.apply_node, []
    with CaptureQueriesContext(connection) as captured:

        def counted(name: str, *args: object, **more: object) -> object:
            before.append(len([query for query in captured.captured_queries if "SAVEPOINT" not in query["sql"]]))
            return real(name, *args, **more)

        world.kube.apply_node = counted
        services.decide_and_run([due], clock=world.clock)
    assert world.kube.get_node(NODE).unschedulable
    assert before[0] <= MAX_STATEMENTS
    world.uninstall()
