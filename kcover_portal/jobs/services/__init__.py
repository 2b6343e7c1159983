"""Services for entry points and sources: order a restart or stop, report a failed pod, carry orders out."""

from kcover_portal.jobs.services.declined_orders import decline as decline
from kcover_portal.jobs.services.labels import look_for_labels as look_for_labels
from kcover_portal.jobs.services.orders import (
    JobUnknown as JobUnknown,
    OrderRefused as OrderRefused,
    Preview as Preview,
    kind_named as kind_named,
    order as order,
    preview as preview,
)
from kcover_portal.jobs.services.performance import (
    PerformanceChange as PerformanceChange,
    PerformanceReader as PerformanceReader,
)
from kcover_portal.jobs.services.recovered_jobs import look_for_returns as look_for_returns
from kcover_portal.jobs.services.recovery import (
    recover as recover,
    recover_job as recover_job,
    recover_pod as recover_pod,
)
from kcover_portal.jobs.services.worker import prune as prune, run as run
