"""Shared parts of the policy pages: diffs, URLs by kind, parameters."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.urls import reverse

from kcover_portal.console.access import Request
from kcover_portal.policies import queries
from kcover_portal.policies.models import Policy

ADDRESS = {queries.RESCUE: "policy", queries.STANDBY: "standby-policy"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a difference: mark is +, -, @ or a space."""

    mark: str
    text: str


def lines(unified: Iterable[str]) -> list[Line]:
    """The lines of a unified diff, without its head."""
    return [Line(line[:1], line[1:]) for line in list(unified)[2:]]


def addresses(row: Policy) -> dict[str, str]:
    """The addresses of a policy's pages, which depend on its kind."""
    base = ADDRESS[row.kind]
    verbs = ("edit", "diff", "rollback", "archive")
    return {"page": reverse(f"console:{base}", args=(row.name,))} | {
        verb: reverse(f"console:{base}-{verb}", args=(row.name,)) for verb in verbs
    }


def number(request: Request, name: str) -> int | None:
    """A revision number from the query, or None."""
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else None


def expected(request: Request) -> int | None:
    """The active revision that the person saw."""
    text = request.POST.get("expected", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else None
