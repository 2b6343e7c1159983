"""The one incident of a storm: what its nodes share are fields."""

import importlib
from dataclasses import replace
from datetime import datetime

import pytest
from django.apps import apps

from kcover.decisions import guards
from kcover_portal.console import fault_names
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.queries import symptoms

pytestmark = pytest.mark.django_db


@pytest.fixture
def node(east: Cluster, now: datetime) -> Node:
    return Node.objects.create(cluster=east, name="gpu-1", created_at=now)


LONG = f"{'a' * 63}/{'b' * 250}"


@pytest.mark.parametrize(
    ("symptom", "code", "name"),
    [
        (guards.Symptom(trait="code", kind="xid", value="62", nodes=3), "code xid 62", "Xid 62"),
        (guards.Symptom(trait="code", kind="check", value="a b", nodes=3), "code check a b", "Check a b"),
        (guards.Symptom(trait="switch", value="rack 1 leaf", nodes=3), "switch rack 1 leaf", "switch rack 1 leaf"),
    ],
)
def test_a_storm_keeps_its_symptom_in_fields(
    node: Node, now: datetime, symptom: guards.Symptom, code: str, name: str
) -> None:
    storm, opened = incidents.keep_storm(node.cluster, symptom, nodes=["gpu-1"], now=now)
    again, reopened = incidents.keep_storm(node.cluster, replace(symptom, nodes=4), nodes=["gpu-2"], now=now)
    assert (opened, reopened, storm.pk) == (True, False, again.pk)
    assert (storm.kind, storm.code, storm.severity) == ("storm", code, "fatal")
    assert (storm.trait, storm.symptom_kind, storm.symptom) == symptom.key
    assert fault_names.symptom(storm) == name
    assert symptoms.storm_scope(node, symptom) == ["gpu-1", "gpu-2"]
    assert symptoms.storm_scope(node, replace(symptom, value="other")) == []


def test_an_upgrade_gives_a_storm_a_severity_that_filters_know(node: Node, now: datetime) -> None:
    storm, _ = incidents.keep_storm(
        node.cluster, guards.Symptom(trait="job", value="a", nodes=3), nodes=["gpu-1"], now=now
    )
    Incident.objects.update(severity="critical")  # as an older portal stored it
    importlib.import_module("kcover_portal.incidents.migrations.0006_severity_of_storms").rename(apps, None)
    storm.refresh_from_db()
    assert storm.severity == "fatal"


def test_long_symptoms_with_one_beginning_are_storms_of_their_own(node: Node, now: datetime) -> None:
    for job in (f"{LONG}-1", f"{LONG}-2"):
        incidents.keep_storm(node.cluster, guards.Symptom(trait="job", value=job, nodes=3), nodes=["gpu-1"], now=now)
    assert set(Incident.objects.values_list("symptom", flat=True)) == {f"{LONG}-1", f"{LONG}-2"}
    assert fault_names.incident_name(Incident.objects.latest("pk")) == f"Storm: job {LONG}-2"
