"""A node's agent in engine tests: it reports and answers commands."""

from typing import Any

from kcover.faults.fault import CommandResult
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Command, Gpu
from kcover_portal.rescue import services
from tests.portal.rescue.world import NODE, PCI, World


def comes_up(world: World, node: str = NODE) -> None:
    """The agent reports, with an inventory of two GPUs."""
    row = world.node(node)
    for index, pci in enumerate((PCI, "0000:5d:00")):
        Gpu.objects.update_or_create(
            node=row, uuid=f"GPU-{node}-{index}", defaults={"index": index, "pci": pci, "seen_at": world.now}
        )
    world.report(node=node)


def commands(kind: str, node: str = NODE) -> list[Command]:
    """What it is or was asked for."""
    return list(Command.objects.filter(node__name=node, kind=kind).order_by("created_at"))


def answers(world: World, command: Command, status: str = "done", message: str = "", **output: Any) -> None:
    """The result of a command comes in."""
    result = CommandResult(id=str(command.pk), status=status, message=message, finished_at=world.now, output=output)
    if fleet.settle_command(command.node, result, now=world.now):
        services.nudge(command.node, now=world.now)  # as ingest does
