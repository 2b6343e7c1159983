"""The image of the reboot job is named by its digest."""

import importlib
import re
from datetime import datetime

import pytest
from django.apps import apps

from kcover_portal.fleet.models import JOB_IMAGE, Cluster

upgrade = importlib.import_module("kcover_portal.fleet.migrations.0019_job_image_digest")


def test_the_image_has_a_tag_for_people_and_a_digest() -> None:
    assert re.fullmatch(r"docker\.io/[a-z/]+:[0-9.]+@sha256:[0-9a-f]{64}", JOB_IMAGE)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("before", "after"),
    [("docker.io/library/busybox:1.36", JOB_IMAGE), ("registry.example/busybox:1.36", "registry.example/busybox:1.36")],
)
def test_an_upgrade_changes_the_image_of_clusters_that_use_the_default(before: str, after: str, now: datetime) -> None:
    cluster = Cluster.objects.create(name="east", created_at=now, job_image=before)
    upgrade.pin(apps, None)
    cluster.refresh_from_db()
    assert cluster.job_image == after
