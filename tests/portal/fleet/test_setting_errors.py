"""A value that a cluster's column does not accept has a code of its own."""

from datetime import datetime
from typing import Any

import pytest

from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.lib.errors import FieldError
from tests.codes import refused

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("mode", "fast", "value_not_one_of"),
        ("mode", "", "value_empty"),
        ("mode", None, "value_empty"),
        ("job_image", "x" * 1000, "text_too_long"),
        ("decision_url", "no address", "decision_url_invalid"),
        ("storage_class", "No such", "storage_class_invalid"),
        ("decision_timeout", -1, "number_too_small"),
        ("decision_timeout", 2**70, "number_too_large"),
        ("decision_timeout", "soon", "value_not_accepted"),
        ("second_admin", "maybe", "value_not_accepted"),
    ],
)
def test_the_code_of_an_invalid_value(name: str, value: Any, code: str, now: datetime) -> None:
    east = Cluster.objects.create(name="east", created_at=now)
    with refused(FieldError, code):
        cluster_settings.set_cluster(east, {name: value}, actor="t", reason="", now=now)
