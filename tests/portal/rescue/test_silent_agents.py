"""An agent's silence: an incident that the cluster confirms, that a report closes, and that the portal causes by none
of its own acts."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from kcover import reasons
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import silence
from kcover_portal.ledger.models import Entry
from kcover_portal.policies import services as policies
from kcover_portal.rescue import services
from kcover_portal.rescue.engine import silent_agents
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.queries import needs_person
from kcover_portal.runtime.services import heartbeats
from tests.codes import code_of
from tests.portal.rescue.world import World

CORDON_SILENT = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: silent}
spec: {rules: [{priority: 10, match: {kinds: [agent]}, mode: enforce, actions: [{name: cordon}]}]}
"""


class Quiet(World):
    """A world in which the door is open, the watch is heard and the sweep listens, every ten seconds or as said."""

    door = True
    error = ""  # of the cluster's API server
    stride = 10  # seconds between two looks

    def listen(self, seconds: float = 0) -> list[Incident]:
        """Lets time pass; the open silences."""
        end = self.now + timedelta(seconds=seconds)
        while True:
            if self.door:
                heartbeats.beat(silence.RECEIVER, gap=silence.HEARTBEAT_GAP, now=self.now)
            fleet.note_watch(
                self.cluster, now=self.now, error=reasons.of("watch_failed", error=self.error) if self.error else None
            )
            silent_agents.check_all(now=self.now)
            if self.now >= end:
                return list(Incident.objects.filter(kind="agent", state="open"))
            self.pass_time(self.stride)

    def unready(self, ready: bool = False) -> None:
        Node.objects.filter(name="gpu-1").update(ready=ready)

    def sync(self) -> None:
        """The rows are what the test says they are."""


@pytest.fixture
def world(db: None) -> Iterator[Quiet]:
    made = Quiet(policy="")
    World.sync(made)
    Node.objects.update(ready_since=made.now - timedelta(days=1))
    Cluster.objects.update(watched_at=made.now)
    made.report()
    yield made
    made.uninstall()


def test_an_agent_is_silent_after_four_intervals_and_once(world: Quiet) -> None:
    assert world.listen(120) == []
    [incident] = world.listen(10)
    assert (incident.code, incident.severity, incident.is_user_fault, incident.count) == ("silent", "warning", True, 1)
    because = reasons.of("agent_silent", since="2026-11-21 08:00:00 UTC")
    assert (incident.because, incident.message) == (because.to_json(), str(because))
    occurrence = incident.occurrences.get()
    assert (occurrence.because, occurrence.message) == (because.to_json(), str(because))
    assert [one.count for one in world.listen(300)] == [1]


def test_a_report_closes_the_incident(world: Quiet) -> None:
    world.listen(200)
    world.report()
    assert world.listen() == []
    assert code_of(Incident.objects.get().closed_because) == "agent_reports_again"
    assert Entry.objects.get(verb="incident.closed").actor == "system"


def test_a_node_that_is_not_ready_makes_the_silence_a_node_fault(world: Quiet) -> None:
    world.listen(200)
    world.unready()
    [incident] = world.listen(10)
    assert (incident.severity, incident.is_user_fault) == ("fatal", False)
    world.unready(ready=True)
    [incident] = world.listen(10)
    assert (incident.severity, incident.is_user_fault) == ("warning", True)


def test_inv_34_an_unwatched_cluster_confirms_nothing(world: Quiet) -> None:
    world.listen(200)
    world.unready()
    Cluster.objects.update(watched_at=world.now - timedelta(minutes=3))
    silent_agents.check_all(now=world.now)
    assert Incident.objects.get().is_user_fault is True


def test_while_an_api_server_is_away_no_agent_of_its_cluster_is_silent(world: Quiet) -> None:
    """Nobody vouches for the agents' tokens then, nor renews them: not to be heard is none of their doing."""
    world.stride = 30
    world.listen(60)
    world.error = "connection refused"
    assert world.listen(420) == []
    world.error = ""
    assert world.listen(270) == []  # the kubelets renew what ran out
    assert len(world.listen(60)) == 1


def test_a_cut_watch_is_no_outage_of_the_api_server(world: Quiet) -> None:
    world.stride = 30
    world.listen(90)
    world.error = "the connection was cut"
    assert world.listen(60) == []
    world.error = ""
    assert len(world.listen()) == 1


def test_an_outage_seen_by_the_agents_endpoint_delays_silence_too(world: Quiet) -> None:
    """The watch may have another way to the API server than the door."""
    world.stride = 30
    world.listen(90)
    fleet.record_api_gap(world.cluster.pk, now=world.now)
    assert world.listen(270) == []
    assert len(world.listen(60)) == 1


def test_inv_34_the_first_state_after_an_outage_confirms_nothing(world: Quiet) -> None:
    """Its nodes may be NotReady only because their kubelets could not say otherwise."""
    world.stride = 30
    world.listen(180)
    world.error = "connection refused"
    world.listen(180)
    world.error = ""
    world.unready()
    assert [one.is_user_fault for one in world.listen(270)] == [True]
    assert [one.is_user_fault for one in world.listen(60)] == [False]


def test_without_a_rule_no_action_runs(world: Quiet) -> None:
    world.unready()
    world.listen(200)
    assert not Rescue.objects.exists()
    assert Decision.objects.latest("pk").answer == "none"


def test_a_rule_for_silent_agents_may_act(world: Quiet) -> None:
    policies.apply(CORDON_SILENT, author="test", reason="", now=world.now)
    world.unready()
    world.listen(200)
    assert world.until("succeeded").outcome == "isolated"


def test_while_the_agents_endpoint_is_down_no_agent_is_silent(world: Quiet) -> None:
    world.door = False
    assert world.listen(600) == []
    world.door = True
    assert world.listen(110) == []  # agents get the time that they have otherwise
    assert len(world.listen(20)) == 1


def test_inv_35_an_agent_is_not_silent_during_a_rescue(world: Quiet) -> None:
    rescue = services.request(world.node(), "cordon", actor="user:anna", reason="t", now=world.now)
    Rescue.objects.filter(pk=rescue.pk).update(state="waiting", due_at=None)
    assert world.listen(300) == []
    Rescue.objects.filter(pk=rescue.pk).update(state="succeeded", closed_at=world.now)
    assert world.listen(110) == []
    assert len(world.listen(20)) == 1


def test_a_node_that_just_came_up_has_time_to_report(world: Quiet) -> None:
    world.unready()
    world.listen(100)
    Node.objects.update(ready=True, ready_since=world.now)
    assert world.listen(110) == []
    assert len(world.listen(20)) == 1


def test_a_node_that_is_gone_is_not_silent(world: Quiet) -> None:
    world.listen(200)
    Node.objects.update(in_cluster=False)
    assert world.listen(10) == []
    assert code_of(Incident.objects.get().closed_because) == "node_gone"


def test_repeated_silence_is_damped(world: Quiet) -> None:
    """Each silence of the hour keeps the next one open five minutes longer."""
    world.stride = 28
    for _ in range(30):
        world.listen(140)
        world.report()
        world.listen()
    assert Incident.objects.count() <= 8
    assert Agent.objects.count() == 1


def test_a_hung_node_needs_a_person_within_a_minute_of_its_silence(world: Quiet) -> None:
    world.listen(50)
    world.unready()
    world.listen(70)
    assert not needs_person.unhandled_incidents().exists()
    world.listen(60)
    assert needs_person.unhandled_incidents().count() == 1
