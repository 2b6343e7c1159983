"""The page of an incident: the acts on its node, the rule that wins now, and what else the node told around it."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from kcover.faults.fault import Fault
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from tests.portal.rescue.world import World


@pytest.fixture
def faulty(make: Any) -> World:
    world = make(policy="", nodes=2)
    world.fault(79)
    world.work()
    return world


def acts(client: Client, **headers: str) -> list[str]:
    page = client.get(f"/incidents/{Incident.objects.order_by('pk')[0].pk}/", headers=headers).content.decode()
    return re.findall(r'id="act-([a-z]+)"', page)


def test_an_open_incident_offers_the_acts_that_apply_to_its_node(faulty: World, person: Any) -> None:
    operator = person("operator")
    assert acts(operator) == ["cordon", "drain", "reboot", "offline", "exclude", "close"]
    faulty.kube.cordon("gpu-1")
    faulty.sync()
    assert acts(operator, **{"HX-Request": "true"}) == ["uncordon", "drain", "reboot", "offline", "exclude", "close"]
    assert acts(person("viewer")) == []
    Incident.objects.update(state=Incident.State.CLOSED)
    assert acts(operator) == []


def test_a_storm_offers_no_act_on_a_node(make: Any, person: Any) -> None:
    world = make(nodes=1)
    Incident.objects.create(
        cluster=world.cluster,
        kind="storm",
        code="xid 79",
        trait="code",
        symptom_kind="xid",
        symptom="79",
        scope=["gpu-1"],
        opened_at=world.now,
        last_at=world.now,
    )
    client = person("operator")
    assert acts(client) == []
    page = client.get(f"/incidents/{Incident.objects.get().pk}/").content.decode()
    assert "/policies/winners/" not in page
    assert "/occurrences/?" not in page


def test_the_incident_leads_to_what_its_node_told_around_it(faulty: World, person: Any) -> None:
    for minutes, code in ((4, 31), (6, 45)):
        faulty.now += timedelta(minutes=minutes)
        faulty.fault(code)
    faulty.fault(62, node="gpu-2")
    client = person("viewer")
    page = client.get(f"/incidents/{Incident.objects.get(code='79').pk}/")
    found = client.get(f"/occurrences/?{page.context['around']}").context["page"]
    assert sorted(row.incident.code for row in found.object_list) == ["31", "79"]


@pytest.mark.parametrize(("kind", "code"), [("xid", "79"), ("check", "remapped"), ("alert", "GPU温度过高")])
def test_the_incident_leads_to_the_rule_that_wins_now(faulty: World, person: Any, kind: str, code: str) -> None:
    Incident.objects.update(kind=kind, code=code)
    client = person("viewer")
    page = client.get(f"/incidents/{Incident.objects.get().pk}/").content.decode()
    [link] = re.findall(r'href="(/policies/winners/\?[^"]*)"', page)
    shown = client.get(link.replace("&amp;", "&"))
    assert ("found" in shown.context, shown.context["asked"]["code"]) == (True, code)
    other = Cluster.objects.create(name="c2", created_at=faulty.now)
    assert person("viewer", cluster=other).get(f"/incidents/{Incident.objects.get().pk}/").status_code == 404


def test_the_kernels_lines_before_a_fault_stand_with_it(make: Any, person: Any) -> None:
    world = make(policy="", nodes=1)
    world.fault(79, message="Xid 79", lines_before="08:00:00.000 <b>AER</b>: Uncorrected error", sequence=1)
    world.fault(79, message="Xid 79", sequence=2)
    page = person("viewer").get(f"/incidents/{Incident.objects.get().pk}/").content.decode()
    assert page.count("08:00:00.000 &lt;b&gt;AER&lt;/b&gt;: Uncorrected error") == 1  # not in the table once more
    world.fault(79, message="Xid 79", lines_before="08:00:09.000 a later line", sequence=3)
    page = person("viewer").get(f"/incidents/{Incident.objects.get().pk}/").content.decode()
    assert [page.count(text) for text in ("AER", "a later line")] == [1, 1]
    assert page.count('<details id="lines-before-') == 2


def test_the_kernels_lines_before_a_fault_are_in_the_answers(make: Any, person: Any) -> None:
    world = make(policy="", nodes=1)
    world.fault(79, message="Xid 79", lines_before="08:00:00.000 AER")
    world.report(Fault(kind="check", code="gpu_count"))
    found = person("viewer").get("/api/v1/events/").json()["results"]
    assert {(row["kind"], row["lines_before"]) for row in found} == {("xid", "08:00:00.000 AER"), ("check", "")}
