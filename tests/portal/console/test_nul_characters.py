"""NUL characters in parameters that no form cleans; PostgreSQL rejects them even in queries."""

import pytest
from django.test import Client

from kcover_portal.fleet.models import Node
from kcover_portal.policies import services
from tests.portal.rescue.world import World

pytestmark = pytest.mark.postgres(reason="SQLite takes NUL characters")


@pytest.fixture
def admin(person, world: World) -> Client:
    client: Client = person("admin")
    client.raise_request_exception = False
    return client


@pytest.mark.parametrize("page", ["/search/?q=%00", "/search/found.json?q=%00", "/policy-tries/new/?policy=%00"])
def test_a_nul_in_a_query_is_no_error_of_the_server(admin: Client, page: str) -> None:
    assert admin.get(page).status_code < 500


def test_a_nul_in_a_reason_is_no_error_of_the_server(admin: Client) -> None:
    sent = {"pack": services.packs()[0].name, "reason": "a\0b"}
    assert admin.post("/policy-packs/install/", sent).status_code < 500


def test_a_nul_in_the_key_of_an_act_is_no_error_of_the_server(admin: Client, world: World) -> None:
    sent = {"picked": str(Node.objects.first().pk), "reason": "x", "once": "a\0"}
    assert admin.post("/many/nodes/cordon/", sent).status_code < 500
