"""Services for entry points and sources: order a restart or stop, report a failed pod, carry orders out."""

from kcover_portal.jobs.services.declined_orders import decline
from kcover_portal.jobs.services.labels import look_for_labels
from kcover_portal.jobs.services.orders import JobUnknown, OrderRefused, Preview, kind_named, order, preview
from kcover_portal.jobs.services.recovered_jobs import look_for_returns
from kcover_portal.jobs.services.recovery import recover, recover_job, recover_pod
from kcover_portal.jobs.services.worker import prune, run

__all__ = [
    "JobUnknown",
    "OrderRefused",
    "Preview",
    "decline",
    "kind_named",
    "look_for_labels",
    "look_for_returns",
    "order",
    "preview",
    "prune",
    "recover",
    "recover_job",
    "recover_pod",
    "run",
]
