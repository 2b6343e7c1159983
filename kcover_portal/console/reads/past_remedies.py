"""What became of earlier rescues about the same fault, by the repair that they did."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db.models import DateTimeField, Exists, ExpressionWrapper, OuterRef
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from kcover import actions
from kcover_portal.accounts import queries as accounts
from kcover_portal.console import presentation
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue, Step

MAX_RESCUES: Final = 500  # the newest
LOOKED_BACK: Final = timedelta(days=365)
SOON: Final = timedelta(days=7)  # after a rescue; the same fault on the node within this time came back
NONE: Final = ""  # no repair: the node was isolated, drained or handed to a person
WITHOUT: Final[str | Promise] = _("No repair by the portal")


@dataclass(frozen=True, slots=True)
class PastRemedy:
    """The finished rescues of a repair: how many, after how many the node was verified, and the fault came back."""

    label: str | Promise
    rescues: int
    verified: int
    returned: int


def of(incident: Incident, scope: accounts.Scope, *, now: datetime) -> list[PastRemedy]:
    """The rescues in the scope, by their last repair that was done, the most frequent first. Two queries."""
    same = {"fault_kind": incident.kind, "fault_code": incident.code}
    rows = Rescue.objects.filter(**same, closed_at__gte=now - LOOKED_BACK).order_by("-closed_at")
    ended = rows.filter(state__in=(Rescue.State.SUCCEEDED, Rescue.State.FAILED))
    again = Incident.objects.filter(
        node=OuterRef("node"),
        kind=incident.kind,
        code=incident.code,
        opened_at__gt=OuterRef("closed_at"),
        opened_at__lte=ExpressionWrapper(OuterRef("closed_at") + SOON, output_field=DateTimeField()),
    )
    rescues = scope.rows(ended).annotate(returned=Exists(again))
    found = list(rescues.values_list("pk", "verified", "returned")[:MAX_RESCUES])
    if not found:
        return []
    repairs = _repairs([pk for pk, *_rest in found])
    counted: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for pk, verified, returned in found:
        counted[repairs.get(pk, NONE)].append((bool(verified), returned))
    return [
        PastRemedy(
            presentation.step_title(name) if name else WITHOUT,
            len(ends),
            sum(verified for verified, _returned in ends),
            sum(returned for _verified, returned in ends),
        )
        for name, ends in sorted(counted.items(), key=lambda one: (-len(one[1]), one[0]))
    ]


def _repairs(rescues: Sequence[int]) -> dict[int, str]:
    """The last repair of each rescue that was done."""
    done = Step.objects.filter(
        rescue__in=rescues, state=Step.State.DONE, name__in=actions.names(lambda spec: spec.mends)
    )
    return dict(done.order_by("rescue", "index").values_list("rescue", "name"))
