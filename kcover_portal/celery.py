"""The Celery application: workers are woken by name, and find their work in the rows."""

import os

from celery import Celery
from celery.signals import worker_ready

from kcover_portal import broker, garbage

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kcover_portal.settings")
broker.install()

app = Celery("kcover_portal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

SWEEP_SECONDS = 0.5
NOTIFY_SECONDS = 1.0

# The sweep finds whatever a lost message, a dead worker or a passed due date left lying.
app.conf.beat_schedule = {
    "sweep": {"task": "rescue.sweep", "schedule": SWEEP_SECONDS, "options": {"expires": SWEEP_SECONDS * 5}},
    "notify": {"task": "notify.sweep", "schedule": NOTIFY_SECONDS, "options": {"expires": NOTIFY_SECONDS * 5}},
    "notify-prune": {"task": "notify.prune", "schedule": 3600.0},
    "prune": {"task": "incidents.prune", "schedule": 3600.0},
    "check runs": {"task": "fleet.advance_runs", "schedule": 2.0, "options": {"expires": 10.0}},
    "preflight": {"task": "preflight.sweep", "schedule": 5.0, "options": {"expires": 30.0}},
    "prune preflight": {"task": "preflight.prune", "schedule": 3600.0},
    "autopilot labels": {"task": "fleet.label_nodes", "schedule": 10.0, "options": {"expires": 10.0}},
    "prune check runs": {"task": "fleet.prune", "schedule": 3600.0},
}


@worker_ready.connect
def _settle(**_said: object) -> None:
    garbage.settle()
