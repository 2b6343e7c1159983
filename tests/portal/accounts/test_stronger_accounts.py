"""A person who administers accounts, and holds little else, against accounts that hold more."""

import pytest

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, CustomRole, User
from kcover_portal.accounts.services import oidc
from kcover_portal.fleet.models import Cluster
from kcover_portal.sources import services as sources
from kcover_portal.sources.models import Source
from tests.codes import refused
from tests.portal.accounts.browsers import Browser, Clock, make_user

pytestmark = pytest.mark.django_db
STAFF = ["read", "administer"]
NEW = "another correct battery"


@pytest.fixture
def stan(clock: Clock) -> Browser:
    services.make_role("staff", STAFF, giver=None, actor="command:root", now=clock.now)
    make_user("stan", clock.now, "staff")
    browser = Browser()
    browser.sign_in("stan")
    return browser


def post(browser: Browser, user: User, verb: str, **sent: str) -> int:
    return browser.client.post(f"/access/users/{user.pk}/{verb}/", sent).status_code


def test_a_disabled_account_that_holds_more_is_not_taken_over(clock: Clock, stan: Browser) -> None:
    root = make_user("root", clock.now, "admin")
    services.disable(root, actor="command:root", now=clock.now)
    assert post(stan, root, "password", password=NEW) == 422
    assert post(stan, root, "second-factors", reason="x") == 422
    assert post(stan, root, "enable", reason="x") == 422
    thief = Browser("203.0.113.9")
    thief.sign_in("root", NEW)
    assert thief.client.get("/access/users/new/").status_code != 200  # a page of admins


def test_a_role_that_holds_more_is_not_replaced(clock: Clock, stan: Browser) -> None:
    root = make_user("root", clock.now, "admin")
    assert post(stan, root, "role", role="viewer") == 422
    assert queries.may(User.objects.get(pk=root.pk), "admin", None)


def test_the_role_of_a_group_that_holds_more_is_not_replaced(clock: Clock, stan: Browser) -> None:
    oidc.map_group("ops", "admin", actor="command:root", now=clock.now)
    giver = User.objects.get(username="stan")
    with refused(services.Refused, "verbs_beyond_own"):
        oidc.map_group("ops", "viewer", giver=giver, actor="user:stan", now=clock.now)


def test_rights_that_the_editor_lacks_are_not_removed_from_a_role(clock: Clock, stan: Browser) -> None:
    desk = services.make_role("desk", ["read", "approve"], giver=None, actor="command:root", now=clock.now)
    giver = User.objects.get(username="stan")
    with refused(services.Refused, "verbs_beyond_own"):
        services.change_role(desk, ["read"], giver=giver, actor="user:stan", now=clock.now)
    assert CustomRole.objects.get(name="desk").verbs


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"kind": "agent", "cluster": "east"}, 403),
        ({"kind": "agent", "cluster": "east", "node": "gpu-1"}, 403),
        ({"kind": "source", "source": "east-alerts"}, 403),
        ({"kind": "viewer", "cluster": "east"}, 201),
    ],
)
def test_a_role_that_only_administers_cannot_make_tokens_that_report_faults(
    body: dict[str, str], status: int, clock: Clock, stan: Browser
) -> None:
    """What agents and sources report makes the portal act on nodes."""
    east = Cluster.objects.create(name="east", created_at=clock.now)
    sources.SOURCES.make(
        Source(name="east-alerts", kind="alertmanager", cluster=east), {}, actor="command:root", now=clock.now
    )
    rest = stan.client.post("/api/v1/tokens", {"name": "ci", **body}, content_type="application/json")
    page = stan.client.post("/access/tokens/new/", {"name": "ci", "networks": "", **body})
    assert rest.status_code == status
    assert page.status_code in ((200,) if status == 201 else (403, 422))  # the form offers no token of a source
    assert ApiToken.objects.count() == (2 if status == 201 else 0)


def test_a_role_that_only_administers_cannot_see_audit_sinks(stan: Browser) -> None:
    assert stan.client.get("/api/v1/audit-sinks").status_code == 403
    assert stan.client.get("/audit/sinks/").status_code == 403
