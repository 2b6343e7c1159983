"""Where the incidents and rescues behind a group of a report are listed."""

from urllib.parse import urlencode

from django.urls import reverse

from kcover.reports.records import By
from kcover_portal.console.report_choice import Asked

COUNTED = {"drill": "false", "program": "false"}  # of incidents


def of(asked: Asked, key: str) -> str:
    """The address of the list; "" for a group that no list can show.

    It has the rows that touch the period. The report counts faults by their beginning and rescues by their end, and
    leaves out faults that are only noted, and nodes without GPUs.
    """
    if not key:
        return ""
    match asked.by:
        case By.CODE:
            kind, _, code = key.partition(" ")
            return _list(asked, "incidents", kind=kind, code=code, **COUNTED) if code else ""
        case By.CLUSTER:
            return _list(asked, "incidents", cluster=key, **COUNTED)
        case By.POOL:
            cluster, _, pool = key.partition("/")
            return _list(asked, "incidents", cluster=cluster, pool=pool, **COUNTED) if pool else ""
        case By.POLICY | By.RULE:
            return _list(asked, "rescues", **{asked.by: key})
        case _:
            return ""


def _list(asked: Asked, page: str, **filters: str) -> str:
    cluster = {"cluster": asked.cluster.name} if asked.cluster is not None else {}
    period = {"since": asked.period.since.isoformat(), "until": asked.period.until.isoformat()}
    chosen = {name: value for name, value in {**cluster, **filters, **period}.items() if value}
    return f"{reverse(f'console:{page}')}?{urlencode(chosen)}"
