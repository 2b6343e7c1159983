"""A real agent over a world of the engine: its own loop, journal, runner and wire format, without a network."""

from collections.abc import Sequence

from agents import config
from agents.agent import Agent
from agents.checks.check_runner import CheckRunner
from agents.checks.health_check import Args
from agents.commands import executor
from agents.host import store
from agents.outbox import spool
from kcover import wire
from kcover.faults.fault import Check, Command, Inventory
from kcover_portal.api.agent import report_decoder
from kcover_portal.fleet import queries
from kcover_portal.incidents import services as incidents
from tests.portal.rescue.world import World


class RealAgent:
    """The agent of a node that was just started; what its checks find is the test's to say."""

    def __init__(self, world: World, node: str, *found: Check) -> None:
        self._world = world
        checks = [Found(name, [one for one in found if one.name == name]) for name in {one.name for one in found}]
        self._agent = Agent(
            config.Config(node=node),
            sources=(),
            clock=world.clock,
            boot_id=lambda: world.kube.get_node(node).boot_id,
            inventory=Inventory,
            uplink=Line(world, node),
            spool=spool.Spool(store.MemoryStore()),
            executor=executor.HostExecutor(
                reboot_command=("false",),
                checks=CheckRunner(checks, gpu_users=list, clock=world.clock),
                clock=world.clock,
            ),
        )

    def tells(self, *checks: Check) -> None:
        """What the timer's checks found."""
        self._agent.record(checks, (), self._world.now)
        self._report()

    def obeys(self) -> None:
        """Does what is on offer, and tells what came of it."""
        self._agent.offer(self._agent.uplink.poll_commands(wait=0))
        assert self._agent.execute_commands()
        self._report()

    def _report(self) -> None:
        while self._agent.report_once(self._world.now):
            pass


class Found:
    """An ``agents.checks.health_check.HealthCheck`` that loads the GPUs and finds what the test says."""

    failure_is_node_fault = True

    def __init__(self, name: str, found: list[Check]) -> None:
        self.name, self._found = name, found

    def invasive(self, args: Args) -> bool:
        return True

    def run(self, args: Args) -> list[Check]:
        return self._found


class Line:
    """An ``agents.uplink.protocol.Uplink`` into the service behind the agents' door."""

    def __init__(self, world: World, node: str) -> None:
        self._world, self._node = world, node

    def post_report(self, body: bytes) -> wire.Answer:
        incoming = report_decoder.read(self._world.cluster, body, now=self._world.now)
        assert not incoming.rejected
        assert incoming.node == self._node
        return incidents.ingest([incoming], now=self._world.now)[0]

    def poll_commands(self, *, wait: float) -> Sequence[Command]:
        node = self._world.node(self._node).pk
        return tuple(queries.commands_on_offer([node], now=self._world.now).get(node, ()))

    def close(self) -> None:
        pass
