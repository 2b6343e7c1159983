"""The Celery application. Messages only wake workers; the work itself is in the rows."""

import os
import sys
from typing import Any

from celery import Celery
from celery.signals import task_postrun, task_prerun, worker_init, worker_ready
from django.db import close_old_connections, connection

from kcover_portal.config import broker, gc_tuning, log_context
from kcover_portal.kube import live

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kcover_portal.settings")
broker.install()

app = Celery("kcover_portal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

# Celery would close a thread's database connection before and after each task. A new connection costs PostgreSQL a
# process with cold caches, a third of the time from a fault to its cordon. Django's CONN_MAX_AGE applies instead.
app.conf["CELERY_DB_REUSE_MAX"] = sys.maxsize


@task_prerun.connect
@task_postrun.connect
def _close_old_connections(**_signal: object) -> None:
    """Before and after each task."""
    if not connection.in_atomic_block:  # not for a task that was called directly
        close_old_connections()


@task_prerun.connect
def _name_log_lines(task: Any, task_id: str, **_signal: object) -> None:
    log_context.begin(task=task.name, task_id=task_id)


app.conf.worker_consumer = "kcover_portal.operate.worker_consumer:Consumer"

# The work that is done by the clock. Beat also sends the sweeps (operate/sweeps.py), if they have work.
app.conf.beat_scheduler = "kcover_portal.operate.scheduler:PersistentScheduler"
app.conf.beat_schedule = {
    "notify-prune": {"task": "notify.prune", "schedule": 3600.0},
    "prune": {"task": "incidents.prune", "schedule": 3600.0},
    "secrets of the engine": {"task": "operate.move_secrets", "schedule": 15.0, "options": {"expires": 15.0}},
    "policy objects": {"task": "policies.read_objects", "schedule": 15.0, "options": {"expires": 15.0}},
    "suspected GPUs": {"task": "incidents.suspect_gpus", "schedule": 60.0, "options": {"expires": 60.0}},
    "preflight objects": {"task": "preflight.read_objects", "schedule": 10.0, "options": {"expires": 10.0}},
    "pair tests": {"task": "preflight.begin_scheduled", "schedule": 600.0, "options": {"expires": 600.0}},
    "jobs": {"task": "jobs.look", "schedule": 10.0, "options": {"expires": 10.0}},
    "repairs": {"task": "repairs.sweep", "schedule": 60.0, "options": {"expires": 60.0}},
    "repairs of lemons": {"task": "reports.report_lemons", "schedule": 3600.0, "options": {"expires": 3600.0}},
    "prune acts about needs": {"task": "needs.prune", "schedule": 3600.0},
    "prune job orders": {"task": "jobs.prune", "schedule": 3600.0},
    "prune preflight": {"task": "preflight.prune", "schedule": 3600.0},
    "deep checks": {"task": "checks.deep_checks", "schedule": 60.0, "options": {"expires": 60.0}},
    "jobs that ask for checks": {"task": "checks.look_at_jobs", "schedule": 60.0, "options": {"expires": 60.0}},
    "prune accounts": {"task": "accounts.prune", "schedule": 3600.0},
    "failed sign-ins": {"task": "accounts.record_failed_attempts", "schedule": 60.0, "options": {"expires": 60.0}},
    "signed heads": {"task": "anchors.publish", "schedule": 60.0, "options": {"expires": 60.0}},
    "prune check runs": {"task": "checks.prune", "schedule": 3600.0},
    "prune sources": {"task": "sources.prune", "schedule": 3600.0},
    "prune evidence": {"task": "evidence.prune", "schedule": 3600.0},
    "load": {"task": "operate.sample_load", "schedule": 300.0, "options": {"expires": 300.0}},
    "cordons by others": {"task": "fleet.look_at_cordons", "schedule": 60.0, "options": {"expires": 60.0}},
    "prune check results": {"task": "fleet.prune", "schedule": 3600.0},
}


@worker_init.connect
def import_kubernetes(**_signal: object) -> None:
    live.import_library()


@worker_ready.connect
def _tune_gc(**_signal: object) -> None:
    gc_tuning.freeze_after_startup()
