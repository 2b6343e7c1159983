"""What the portal had to do over the last day, as charts."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

from django.utils.translation import gettext as _

from kcover_portal.console.line_charts import LineChart, line_chart
from kcover_portal.runtime import queries as runtime
from kcover_portal.runtime.models import LoadSample

MAX_GAP: Final = 3 * runtime.INTERVAL  # two samples that are further apart give no rate


def of(*, now: datetime) -> list[LineChart]:
    """The charts; [] until there are two samples. One query."""
    samples = runtime.load_samples(now=now)
    if len(samples) < 2:
        return []
    times = [one.at for one in samples]
    return [
        line_chart(
            "load-reports",
            _("Reports of agents per minute"),
            times[1:],
            [(_("stored"), _rates(samples, "reports")), (_("refused"), _rates(samples, "refused"))],
        ),
        line_chart(
            "load-events",
            _("Events of sources per minute"),
            times[1:],
            [(_("taken"), _rates(samples, "events")), (_("not taken"), _rates(samples, "rejected"))],
        ),
        line_chart(
            "load-due",
            _("Due for a worker"),
            times,
            [(_("rescues"), [one.rescues for one in samples]), (_("faults"), [one.faults for one in samples])],
        ),
        line_chart(
            "load-waited",
            _("Wait of the oldest due work, s"),
            times,
            [(_("wait"), [round(one.waited, 1) for one in samples])],
        ),
    ]


def _rates(samples: Sequence[LoadSample], column: str) -> list[float | None]:
    """How many a minute between each sample and the one before; None after a gap, and where the count fell."""
    return [_rate(earlier, later, column) for earlier, later in pairwise(samples)]


def _rate(earlier: LoadSample, later: LoadSample, column: str) -> float | None:
    more, took = getattr(later, column) - getattr(earlier, column), later.at - earlier.at
    return round(more * 60 / took.total_seconds(), 1) if more >= 0 and took <= MAX_GAP else None
