"""``manage.py trial`` prepares a trial once and leaves later changes alone."""

from pathlib import Path

import pytest
from django.core.management import call_command

from kcover_portal.accounts.models import User
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from kcover_portal.policies.models import Policy

pytestmark = pytest.mark.django_db


def prepare(folder: Path) -> None:
    password = folder / "admin_password"
    password.write_text("a-long-and-random-text\n")
    call_command(
        "trial",
        cluster="edge",
        password_file=str(password),
        job_namespace="edge-jobs",
        preflight_namespace="edge-preflight",
        event_namespace="edge-events",
    )


def test_the_command_creates_admin_cluster_and_policies_in_shadow_mode(tmp_path) -> None:
    prepare(tmp_path)
    [admin], [cluster] = User.objects.all(), Cluster.objects.all()
    assert admin.check_password("a-long-and-random-text")
    assert [(one.role, one.cluster) for one in admin.bindings.all()] == [("admin", None)]
    assert (cluster.name, cluster.in_cluster, cluster.mode) == ("edge", True, "shadow")
    assert (cluster.job_namespace, cluster.event_namespace) == ("edge-jobs", "edge-events")
    assert cluster.nccl_namespace == "edge-preflight"
    assert Policy.objects.exists()


def test_a_second_run_changes_nothing(tmp_path) -> None:
    prepare(tmp_path)
    call_command("cluster", "set", "edge", "mode=enforce")
    before = (Entry.objects.count(), Policy.objects.count())
    prepare(tmp_path)
    assert Cluster.objects.get().mode == "enforce"
    assert (Entry.objects.count(), Policy.objects.count()) == before
