"""What people did about a need: who has seen it, whose it is, until when it is out of sight, and their notes."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from kcover import need_causes
from kcover_portal.needs.models import NeedAct

# The newest acts that are read: whoever writes many hides nobody else's, and makes no page long.
MAX_OF_PERSON: Final = 2000  # about all needs that are shown
MAX_OF_VERB: Final = 20  # of one verb of a person about one need


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """The acts about one need that still count. Names are actors: ``user:ann``; "" for nobody."""

    acknowledged_by: str = ""
    acknowledged_at: datetime | None = None
    assigned_to: str = ""
    snoozed_until: datetime | None = None
    snoozed_by: str = ""
    notes: tuple[NeedAct, ...] = ()

    @classmethod
    def of(
        cls, acts: Iterable[NeedAct], *, members: Collection[str], severity: str, since: datetime | None, now: datetime
    ) -> Self:
        """What the acts, oldest first, mean for a need as it is now.

        An act counts for the people who see one of the members that its author saw, and while the cause lasts. An
        acknowledgement and a snooze end when the need gets worse.
        """
        seen = [act for act in acts if {*act.members} & {*members} and need_causes.lasts_since(since, act.at)]
        newest = {act.verb: act for act in seen}

        def holds(act: NeedAct | None) -> bool:
            return act is not None and not need_causes.is_worse(
                members=members, severity=severity, than_members=act.members, than_severity=act.severity
            )

        acknowledged, undone = newest.get(NeedAct.Verb.ACKNOWLEDGE), newest.get(NeedAct.Verb.UNACKNOWLEDGE)
        assigned = newest.get(NeedAct.Verb.ASSIGN)
        snoozed = newest.get(NeedAct.Verb.SNOOZE)
        if not holds(snoozed) or snoozed is None or snoozed.until is None or snoozed.until <= now:
            snoozed = None
        if not holds(acknowledged) or (acknowledged and undone and undone.pk > acknowledged.pk):
            acknowledged = None
        return cls(
            acknowledged_by=acknowledged.by if acknowledged else "",
            acknowledged_at=acknowledged.at if acknowledged else None,
            assigned_to=assigned.assignee if assigned else "",
            snoozed_until=snoozed.until if snoozed else None,
            snoozed_by=snoozed.by if snoozed else "",
            notes=tuple(act for act in seen if act.verb == NeedAct.Verb.NOTE),
        )


def acts_of(needs: Collection[str]) -> dict[str, Sequence[NeedAct]]:
    """The acts about these needs, oldest first; of each person the newest. One query."""
    found: dict[str, list[NeedAct]] = defaultdict(list)
    last = F("id").desc()
    of_person = Window(RowNumber(), partition_by=[F("by")], order_by=last)
    of_verb = Window(RowNumber(), partition_by=[F("need"), F("by"), F("verb")], order_by=last)
    rows = NeedAct.objects.filter(need__in=needs).annotate(of_person=of_person, of_verb=of_verb)
    for act in rows.filter(of_person__lte=MAX_OF_PERSON, of_verb__lte=MAX_OF_VERB).order_by("id"):
        found[act.need].append(act)
    return dict(found)
