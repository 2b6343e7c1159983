"""``python -m tests.crash.election.watch``: ``manage.py watch`` with the times of ``tests.crash.election.names``."""

import os

import django
from django.core.management import call_command

from tests.crash.election import names

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kcover_portal.settings")
django.setup()  # must run before models are imported

from kcover_portal.fleet.services import action_lease  # noqa: E402
from kcover_portal.operate import lease_watch  # noqa: E402

for module, name in (
    (action_lease, "LEASE_SECONDS"),
    (action_lease, "ACT_SECONDS"),
    (action_lease, "GRACE_SECONDS"),
    (lease_watch, "ROUND_SECONDS"),
):
    setattr(module, name, getattr(names, name))

call_command("watch")
