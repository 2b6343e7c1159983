"""Real agents against the real ingest: whatever is lost between them, each line of a log is counted once."""

import random
from collections import Counter
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

import pytest

from agents import config
from agents.agent import Agent
from agents.host import store
from agents.outbox import spool
from agents.probes.log import sources
from agents.uplink.protocol import UplinkError
from kcover import wire
from kcover.faults.fault import Inventory
from kcover_portal.api.agent import report_decoder
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents import services
from kcover_portal.incidents.models import Incident

pytestmark = pytest.mark.django_db(transaction=True)

LINE = "NVRM: Xid (PCI:0000:4e:00): {code}, pid='<unknown>', name=<unknown>, test"


class Way:
    """An agent's uplink: straight into the portal's ingest. ``fails`` says what becomes of each answer."""

    def __init__(self, cluster: Cluster, clock: Callable[[], datetime], fails: Callable[[], str] = lambda: "") -> None:
        self._cluster, self._clock, self.fails = cluster, clock, fails

    def post_report(self, body: bytes) -> wire.Answer:
        how = self.fails()
        if how == "down":
            raise UplinkError("nobody there")
        incoming = report_decoder.read(self._cluster, body, now=self._clock())
        (answer,) = services.ingest([incoming], now=self._clock())
        if how == "lost":
            raise UplinkError("the answer never came")
        return answer

    def poll_commands(self, *, wait: float) -> tuple:
        return ()

    def close(self) -> None:
        """Nothing to close."""


class Node:
    """One node with a clock, a kernel log and agents."""

    def __init__(self, now: datetime) -> None:
        self.now, self.portals_now = now, now
        self.cluster = Cluster.objects.create(name="east", created_at=now)
        self.lines: list[tuple[str, datetime]] = []
        self.written: Counter[str] = Counter()
        self.agents: list[tuple[Agent, store.MemoryStore]] = []

    def agent(self, disk: store.MemoryStore | None = None, *, fails: Callable[[], str] = lambda: "") -> Agent:
        """One more agent on the node, from a disk of its own."""
        disk = disk or store.MemoryStore()
        ring = sources.MemoryLog()
        for line, at in self.lines:  # its own place in the same log
            ring.write(line, at=at)
        made = Agent(
            config.Config(node="gpu-1"),
            sources=[ring],
            clock=lambda: self.now,
            boot_id=lambda: "boot-1",
            inventory=Inventory,
            uplink=Way(self.cluster, lambda: self.portals_now, fails),
            spool=spool.Spool(disk),
            executor=None,
            rng=random.Random(1),
        )
        self.agents.append((made, disk))
        return made

    def log(self, code: int) -> None:
        line = LINE.format(code=code)
        self.lines.append((line, self.now))
        self.written[str(code)] += 1
        for agent, _ in self.agents:
            agent.logs.sources[0].write(line, at=self.now)

    def step(self, seconds: float = 0.0, *, awake: Collection[int] | None = None) -> None:
        """Lets time pass, and the agents at these places do what there is to do; all of them, where none is named."""
        self.now += timedelta(seconds=seconds)
        self.portals_now += timedelta(seconds=abs(seconds))
        for agent in [agent for place, (agent, _) in enumerate(self.agents) if awake is None or place in awake]:
            agent.observe(self.now)
            while agent.report_once(self.now):
                pass

    def counted(self) -> Counter[str]:
        return Counter({row.code: row.count for row in Incident.objects.filter(kind="xid")})


@pytest.fixture
def node(now: datetime) -> Node:
    return Node(now)


def test_inv_02_answers_that_are_lost_after_the_commit_count_nothing_twice(node: Node) -> None:
    draw = random.Random(7)
    node.agent(fails=lambda: draw.choice(("", "lost", "down")))
    for number in range(40):
        node.log(code=(48, 62, 79)[number % 3])
        node.step(draw.choice((0.5, 3, 20)))
    node.agents[0][0].uplink.fails = lambda: ""
    for _ in range(5):
        node.step(60)
    assert node.counted() == node.written


def test_a_portal_that_was_down_for_an_hour_receives_everything_once(node: Node) -> None:
    state = {"how": ""}
    node.agent(fails=lambda: state["how"])
    node.step()
    state["how"] = "down"
    for minute in range(60):
        node.log(code=minute % 7 + 100)
        node.step(60)
    assert not node.counted()
    state["how"] = ""
    for _ in range(3):
        node.step(60)
    assert node.counted() == node.written


def test_an_agent_that_crashes_after_each_step_counts_nothing_twice(node: Node) -> None:
    states = {"how": "lost"}
    node.agent(fails=lambda: states["how"])
    for number in range(10):
        node.log(code=62 + number % 2)
        node.step(7)
        (_, disk) = node.agents.pop()  # all that was in memory is gone
        states["how"] = "lost" if number % 3 else ""
        node.agent(disk, fails=lambda: states["how"])
    states["how"] = ""
    for _ in range(3):
        node.step(60)
    assert node.counted() == node.written


def test_two_agents_on_one_node_count_each_line_once(node: Node) -> None:
    """A second one that somebody forgot: it has a spool of its own and reads the same log."""
    node.agent()
    node.agent()
    for number in range(12):
        node.log(code=(48, 62)[number % 2])
        node.step(20)
    assert node.counted() == node.written


def test_two_agents_on_one_node_that_fold_a_storm_otherwise_count_each_line_once(node: Node) -> None:
    """One looks at each line, the other now and then: what one tells singly the other tells as a count."""
    node.agent()
    node.agent()
    draw = random.Random(5)
    for number in range(90):
        node.log(code=(48, 48, 62)[number % 3])
        node.step(draw.choice((0.1, 0.4, 1.5)), awake=(0,) if number % 7 else (0, 1))
    for _ in range(3):
        node.step(60)
    assert node.counted() == node.written


def test_an_agent_that_lost_its_disk_reads_its_log_again_and_counts_nothing_twice(node: Node) -> None:
    """It folds the lines into other counts than the first time, as it reads them all at once."""
    node.agent()
    for number in range(20):
        node.log(code=62)
        node.step(1.0 + number % 3)
    node.step(60)
    node.agents.clear()
    node.agent()
    for _ in range(2):
        node.log(code=62)
        node.step(60)
    assert node.counted() == node.written


def test_inv_03_a_clock_that_jumps_loses_and_repeats_no_line(node: Node) -> None:
    node.agent()
    for jump in (0, 86_400, -86_400, 3, -10, 7_200, -86_400 * 30, 1):
        node.log(code=62)
        node.step(jump)
        node.step(6)
    node.step(60)
    assert node.counted() == node.written
