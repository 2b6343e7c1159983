"""Reports of which it is open whether they are of the present boot: nothing returns a node while there are any."""

from collections.abc import Sequence
from datetime import timedelta

from kcover import reasons
from kcover_portal.incidents import queries as incidents
from kcover_portal.incidents.queries import seen
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.outcomes import Wait

CHECK_SECONDS = 5.0


def wait(context: Context) -> Wait | None:
    """Waits for states that may be of the present boot: they end, or they still stand when the doubt is over."""
    found = seen.in_doubt(context.node)
    if found is None:
        return None
    reports, until = found
    return Wait(
        CHECK_SECONDS, reasons.of("verify_waits_for_doubt", reports=named(reports), until=reasons.moment(until))
    )


def named(reports: Sequence[incidents.LateReport]) -> tuple[reasons.Reason, ...]:
    """Each report with its source, its fault and by how much it was late."""
    return tuple(
        reasons.of("late_report", source=one.source, fault=one.fault, late=reasons.span(timedelta(seconds=one.seconds)))
        for one in reports
    )
