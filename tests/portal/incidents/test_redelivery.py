"""A fault that occurs again: its count rises, and the content of a later line is used."""

import pytest

from kcover.faults.fault import Fault
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services
from tests.portal.rescue.world import NODE, PCI, World

pytestmark = pytest.mark.django_db
OFTEN = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: often}
spec:
  rules:
    - {priority: 10, errorCode: ["62"], match: {minCount: 3, within: 10min}, actions: [{name: cordon}]}
"""
KINDS = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: kinds}
spec: {rules: [{priority: 10, match: {kinds: [xid, sxid]}, actions: [{name: cordon}]}]}
"""
XID_149 = "NVRM: Xid (PCI:0000:4e:00): 149, NETIR_LINK_EVT  %s XC0 i0 Link 01 (0x00450001 0x00000009 0x0 0x0 0x0 0x0)"
SXID_11012 = "nvidia-nvswitch2: SXid (PCI:0000:4e:00.0): 11012, %s, Link 61 x"


@pytest.fixture
def make():
    made = []

    def world(policy):
        made.append(World(policy=policy))
        return made[-1]

    yield world
    for one in made:
        one.uninstall()


def test_occurrences_within_seconds_are_counted_by_a_rule_that_asks_how_often(make):
    world = make(OFTEN)
    for n in range(3):
        world.fault(62, sequence=n)
        world.work()
        world.pass_time(1)
    assert not world.kube.get_node(NODE).unschedulable
    world.pass_time(5)
    services.sweep(now=world.now)
    world.work()
    assert world.kube.get_node(NODE).unschedulable


@pytest.mark.parametrize(
    ("kind", "code", "line", "words"),
    [("xid", 149, XID_149, ("Nonfatal", "Fatal")), ("sxid", 11012, SXID_11012, ("Non-fatal", "Fatal"))],
)
def test_a_fatal_line_after_one_that_is_not_is_judged_at_once(make, kind, code, line, words):
    world = make(KINDS)
    for n, word in enumerate(words):
        assert not world.kube.get_node(NODE).unschedulable
        world.report(Fault(kind=kind, code=code, pci=PCI, source="kmsg", sequence=n, message=line % word))
        world.work()
    assert world.kube.get_node(NODE).unschedulable
    incident = Incident.objects.get()
    assert (incident.severity, incident.is_user_fault, incident.message) == ("fatal", False, line % "Fatal")


def test_a_line_that_is_less_bad_takes_nothing_back(make):
    world = make("")
    for n, word in enumerate(("Fatal", "Nonfatal")):
        fault = Fault(kind="xid", code=149, pci=PCI, source="kmsg", sequence=n, message=XID_149 % word)
        world.report(fault)
    incident = Incident.objects.get()
    assert (incident.severity, incident.is_user_fault, incident.message) == ("fatal", False, XID_149 % "Fatal")


def test_a_worse_drill_does_not_change_the_severity_of_the_fault(make):
    world = make("")
    for n, word in enumerate(("Nonfatal", "Fatal")):
        message = XID_149 % word
        world.report(
            Fault(kind="xid", code=149, pci=PCI, source="kmsg", sequence=n, message=message, drill=word == "Fatal")
        )
    assert Incident.objects.get().message == XID_149 % "Nonfatal"
