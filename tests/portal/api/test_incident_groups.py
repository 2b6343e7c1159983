"""``incidents/groups``: one row for one cause, with the filters of the list."""

from datetime import datetime, timedelta

import pytest

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import STORM, Incident, JobSeen
from tests.portal.api.conftest import Api, add_node, caller, fields

pytestmark = pytest.mark.django_db
PATH = "incidents/groups"


@pytest.fixture
def faults(node: Node, now: datetime) -> None:
    """Xid 43 of a program on two GPUs, Xid 79 on one of them; a fault of another cluster, and a storm."""
    far = add_node(Cluster.objects.create(name="far", created_at=now), "gpu-9", now)
    for place, code, gpu, program, count in (
        (node, "43", "GPU-a", True, 5),
        (node, "43", "GPU-b", True, 1),
        (node, "79", "GPU-b", False, 2),
        (far, "79", "GPU-z", False, 1),
    ):
        at = {"opened_at": now, "last_at": now, "cluster": place.cluster, "node": place}
        more = {"kind": "xid", "code": code, "gpu_uuid": gpu, "device": gpu, "is_user_fault": program, "count": count}
        Incident.objects.create(**at, **more)
    Incident.objects.create(cluster=node.cluster, kind=STORM, code="xid 79", opened_at=now, last_at=now)
    JobSeen.objects.create(node=node, job="train/llm", at=now - timedelta(minutes=5))


@pytest.mark.usefixtures("faults")
def test_one_cause_is_one_row(viewer: Api, now: datetime) -> None:
    def rows(query: str = "", api: Api = viewer) -> list[tuple[object, ...]]:
        found = api.get(f"{PATH}{query}").json()
        named = ("kind", "code", "cluster", "node", "gpu_uuid", "job")
        counted = ("incidents", "open", "occurrences", "nodes")
        assert found["more"] == 0
        return [
            (*(row[name] for name in named if row[name] is not None), *(row[name] for name in counted))
            for row in found["results"]
        ]

    by_fault = [("xid", "79", 2, 2, 3, 2), ("xid", "43", 2, 0, 6, 1)]
    assert rows() == rows("?by=fault") == by_fault
    assert rows("?by=node") == [("east", "gpu-1", 3, 1, 8, 1), ("far", "gpu-9", 1, 1, 1, 1)]
    assert ("east", "gpu-1", "GPU-b", 2, 1, 3, 1) in rows("?by=gpu")
    assert rows("?by=job") == [("east", "train/llm", 3, 1, 8, 1)]
    assert rows("?code=79&cluster=far") == [("xid", "79", 1, 1, 1, 1)]
    far = Cluster.objects.get(name="far")
    assert rows("?by=node", caller("viewer", now, cluster=far)) == [("far", "gpu-9", 1, 1, 1, 1)]


@pytest.mark.parametrize("query", ["by=colour", "bogus=1", "page_size=3"])
def test_an_unknown_parameter_is_an_error(viewer: Api, query: str) -> None:
    assert list(fields(viewer.get(f"{PATH}?{query}"))) == [query.partition("=")[0]]
