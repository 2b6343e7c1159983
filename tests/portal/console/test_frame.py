"""The frame of all pages: the groups of the navigation."""

from itertools import groupby

import pytest

from tests.portal.rescue.world import World

OPERATE = ["overview", "incidents", "rescues", "approvals", "jobs", "safety", "reports"]
FLEET = ["nodes", "parts", "repairs", "standbys", "check-runs", "preflight-runs"]


def groups(client) -> dict[str, list[str]]:
    places = client.get("/account/").context["places"]
    return {str(group): [place.page for place in some] for group, some in groupby(places, key=lambda one: one.group)}


@pytest.mark.parametrize(
    ("role", "configure", "admin"),
    [
        ("viewer", ["policies", "sources"], ["audit", "system"]),
        ("admin", ["policies", "sources", "notifications"], ["audit", "system", "access"]),
    ],
)
def test_the_navigation_has_four_groups_with_what_a_person_may_open(
    person, world: World, role: str, configure: list[str], admin: list[str]
):
    assert groups(person(role)) == {"Operate": OPERATE, "Fleet": FLEET, "Configure": configure, "Admin": admin}
