"""A person who granted an account its rights within a day counts as its owner (invariant 44)."""

import pytest

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.services import oidc
from kcover_portal.accounts.services.oidc.groups import join
from tests.portal.accounts.browsers import Clock, make_user

pytestmark = pytest.mark.django_db


def test_whoever_changes_the_custom_role_of_an_account_counts(clock: Clock) -> None:
    root = make_user("root", clock.now, "admin")
    desk = services.make_role("desk", ["read"], giver=None, actor="command:root", now=clock.now)
    make_user("eve", clock.now, "desk")
    now = clock.advance(days=2)
    services.change_role(desk, ["read", "approve"], giver=root, actor="user:root", now=now)
    assert queries.controllers("user:eve", at=now) == ["user:root"]


def test_whoever_maps_the_group_of_an_account_counts(clock: Clock) -> None:
    root = make_user("root", clock.now, "admin")
    eve = make_user("eve", clock.now)
    now = clock.advance(days=2)
    oidc.map_group("ops", "approver", giver=root, actor="user:root", now=now)
    join(eve, ["ops"], actor="provider:idp", now=now)
    assert queries.controllers("user:eve", at=now) == ["user:root"]
