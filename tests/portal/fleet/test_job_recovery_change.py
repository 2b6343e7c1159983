"""What lets the portal do more without a person waits for a second admin, whatever the setting is called."""

import pytest

from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import pending_changes

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("before", ["off", "shadow", "approve"])
def test_restarts_of_jobs_without_a_person_are_a_loosening(before: str, now) -> None:
    cluster = Cluster.objects.create(name="east", created_at=now, second_admin=True, job_recovery=before)
    assert pending_changes.loosens_settings(cluster, {"job_recovery": "enforce"})
