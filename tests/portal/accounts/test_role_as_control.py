"""A person who granted an account its rights within a day counts as its owner (invariant 44)."""

import pytest

from kcover import audit
from kcover.audit import subjects
from kcover_portal.accounts import queries, services
from kcover_portal.accounts.queries import people
from kcover_portal.accounts.services import oidc
from kcover_portal.accounts.services.oidc.groups import join
from tests.portal.accounts.browsers import Clock, make_user

pytestmark = pytest.mark.django_db


def test_a_change_of_a_custom_role_makes_its_editor_a_controller(clock: Clock) -> None:
    root = make_user("root", clock.now, "admin")
    desk = services.make_role("desk", ["read"], giver=None, actor="command:root", now=clock.now)
    make_user("eve", clock.now, "desk")
    now = clock.advance(days=2)
    services.change_role(desk, ["read", "approve"], giver=root, actor="user:root", now=now)
    assert queries.controllers("user:eve", at=now) == ["user:root"]


def test_a_mapping_of_a_group_makes_its_author_a_controller(clock: Clock) -> None:
    root = make_user("root", clock.now, "admin")
    eve = make_user("eve", clock.now)
    now = clock.advance(days=2)
    oidc.map_group("ops", "approver", giver=root, actor="user:root", now=now)
    join(eve, ["ops"], actor="provider:idp", now=now)
    assert queries.controllers("user:eve", at=now) == ["user:root"]


def test_a_group_with_a_long_name_counts_like_any_other(clock: Clock) -> None:
    root, group = make_user("root", clock.now, "admin"), "g" * 255
    eve = make_user("eve", clock.now)
    now = clock.advance(days=2)
    oidc.map_group(group, "approver", giver=root, actor="user:root", now=now)
    join(eve, [group], actor="provider:idp", now=now)
    assert queries.controllers("user:eve", at=now) == ["user:root"]


CONTROL_ACTS = [
    (audit.PasswordChanged(user="eve"), subjects.user("eve")),
    (audit.RoleGiven(user="eve", role="viewer"), subjects.user("eve")),
    (audit.RoleTaken(user="eve", role="viewer"), subjects.user("eve")),
    (audit.RoleChanged(role="desk"), subjects.role("desk")),
    (audit.GroupMapped(group="g" * 500, role="viewer"), subjects.group("g" * 500)),
]


@pytest.mark.parametrize(("act", "subject"), CONTROL_ACTS)
def test_acts_and_queries_build_one_subject(act: audit.Act, subject: str) -> None:
    assert act.to_entry().subject == subject
    assert act.verb in people.CONTROL_VERBS
    assert len(subject) <= subjects.MAX_SUBJECT
