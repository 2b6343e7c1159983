"""Writing incidents: reports are taken in, faults kept, incidents closed."""

from kcover_portal.incidents.services.closing import Refused, close, close_by_hand
from kcover_portal.incidents.services.ingesting import Delivery, ingest, prune
from kcover_portal.incidents.services.keeping import (
    call_for_judgement,
    judge_anew,
    judge_under,
    keep_fault,
    keep_storm,
    mark_judged,
)
from kcover_portal.incidents.services.sharing import note_jobs

__all__ = [
    "Delivery",
    "Refused",
    "call_for_judgement",
    "close",
    "close_by_hand",
    "ingest",
    "judge_anew",
    "judge_under",
    "keep_fault",
    "keep_storm",
    "mark_judged",
    "note_jobs",
    "prune",
]
