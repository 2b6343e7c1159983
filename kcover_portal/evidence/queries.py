"""Reads bundles."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet, Sum

from kcover.evidence import bundle as core
from kcover_portal.evidence.models import Bundle, Chunk
from kcover_portal.fleet.models import Command

UPLOAD_TIME_LIMIT = timedelta(days=1)  # from the request; an agent gives up after as long


@dataclass(frozen=True, slots=True)
class Shown:
    """A bundle, the command that asked for it, and the sections that the agent listed."""

    bundle: Bundle
    command: Command | None
    sections: list[core.Section]


def key_of(rescue: int, number: int) -> str:
    """The key of the command to the agent."""
    return f"evidence-{rescue}-{number}"


def of_rescue(rescue: int) -> list[Shown]:
    """The bundles of a rescue in order, in two queries."""
    rows = list(Bundle.objects.filter(rescue=rescue).order_by("number"))
    keys = [key_of(row.rescue, row.number) for row in rows]
    commands = {command.key: command for command in Command.objects.filter(key__in=keys)} if keys else {}
    found = []
    for row, key in zip(rows, keys, strict=True):
        command = commands.get(key)
        sections = core.read_sections(command.output.get("sections")) if command is not None else []
        found.append(Shown(row, command, sections))
    return found


def content(bundle: Bundle) -> Iterator[bytes]:
    """The chunks of a bundle in order, one in memory at a time."""
    chunks = Chunk.objects.filter(bundle=bundle).order_by("offset").values_list("pk", flat=True)
    for pk in list(chunks):
        yield bytes(Chunk.objects.values_list("data", flat=True).get(pk=pk))


def with_content() -> QuerySet[Bundle]:
    """The bundles of which something is stored."""
    return Bundle.objects.filter(received__gt=0)


def stored_bytes() -> int:
    """The bytes that all bundles take."""
    return with_content().order_by().aggregate(total=Sum("received"))["total"] or 0


def not_uploaded(*, now: datetime) -> QuerySet[Bundle]:
    """The bundles that were requested too long ago to arrive any more."""
    return Bundle.objects.filter(state=Bundle.State.REQUESTED, requested_at__lt=now - UPLOAD_TIME_LIMIT)


def numbers_of(rescues: Collection[int]) -> dict[int, list[int]]:
    """The numbers of the bundles that can be downloaded, by rescue."""
    rows = Bundle.objects.filter(rescue__in=rescues, state=Bundle.State.KEPT).order_by("rescue", "number")
    found: dict[int, list[int]] = {}
    for rescue, number in rows.values_list("rescue", "number"):
        found.setdefault(rescue, []).append(number)
    return found
