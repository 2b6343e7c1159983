"""What ends the hold of a guard: a time if there is one, else what must happen first. No time is invented."""

from collections.abc import Collection, Mapping
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _, gettext_lazy

from kcover import reasons
from kcover.decisions.guards import reason_codes
from kcover_portal.console.reads.wait import Wait

THEN_GUARDS: Final = gettext_lazy("then the guards are evaluated again")
TIMED: Final = ("maintenance", "maintenance_because", "cooldown", "rule_cooldown")
STORM: Final = gettext_lazy("until a person closes the storm")
# By the code of the finding: what must happen. The guards are evaluated again meanwhile.
ENDS: Final[Mapping[str, str | Promise]] = {
    "excluded": gettext_lazy("until a person ends the exclusion"),
    "paused": gettext_lazy("until a person resumes automation"),
    "paused_because": gettext_lazy("until a person resumes automation"),
    "shadow_no_writes": gettext_lazy("until a person changes the mode"),
    "breaker": gettext_lazy("until fewer nodes were isolated within the breaker's time window"),
    "budget": gettext_lazy("until a node that counts in the same budget is back in service"),
    "floor": gettext_lazy("until more nodes of the pool are in service"),
    "rate": gettext_lazy("until fewer nodes fail than now"),
    "none_eligible": gettext_lazy("until the cluster has an eligible node"),
    **dict.fromkeys(reason_codes.STORMS, STORM),
}


def of(because: reasons.Reason | None) -> Wait | None:
    """The end of a hold by this reason; None if the reason names no guard that is known here.

    If several guards hold, the last time counts, unless one of them has none: then what must happen for each of those
    stands instead.
    """
    untimed = [ENDS[one.code] for one in reasons.saying(because, *ENDS)]
    if untimed:
        each = list(dict.fromkeys(map(str, untimed)))
        return Wait(None, _(", ").join(each), held=True)
    ends = [reasons.read_moment(str(dict(one.params)["until"])) for one in reasons.saying(because, *TIMED)]
    return Wait(max(ends), THEN_GUARDS, held=True) if ends else None


def of_decision(why: Collection[reasons.Reason]) -> Wait | None:
    """The end of what holds a decision back, by its reasons; None if nothing does, or if the act was dropped."""
    because = reasons.both(*why) if why else None
    return None if reasons.says(because, "expired") else of(because)
