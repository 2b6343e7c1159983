"""Causes of needs: their ids, the place that nodes share, and when one got worse."""

from datetime import UTC, datetime, timedelta

import pytest

from kcover import need_causes
from kcover.needs import Need

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)


def test_an_id_depends_on_every_part_and_on_where_parts_end() -> None:
    ids = {
        need_causes.identity(Need.INCIDENT, 1, "xid", "79"),
        need_causes.identity(Need.INCIDENT, 2, "xid", "79"),
        need_causes.identity(Need.RESCUE, 1, "xid", "79"),
        need_causes.identity(Need.INCIDENT, 1, "xid", "7", "9"),
        need_causes.identity(Need.INCIDENT, 1, "xid7", "9"),
    }
    assert len(ids) == 5
    assert all(len(one) == need_causes.ID_LENGTH for one in ids)


@pytest.mark.parametrize(
    ("places", "shared"),
    [
        ([{"leaf": "a", "rack": "r"}], None),
        ([{"leaf": "a", "rack": "r"}, {"leaf": "a", "rack": "r"}], ("leaf", "a")),
        ([{"leaf": "a", "rack": "r"}, {"leaf": "b", "rack": "r"}], ("rack", "r")),
        ([{"leaf": "", "rack": ""}, {"leaf": "", "rack": ""}], None),
        ([{"leaf": "a"}, {}], None),
        ([{"nvlink": "n", "leaf": "a"}, {"nvlink": "n", "leaf": "a"}], ("nvlink", "n")),
    ],
)
def test_the_narrowest_place_that_all_share(places: list[dict[str, str]], shared: tuple[str, str] | None) -> None:
    assert need_causes.shared_place(places) == shared


@pytest.mark.parametrize(
    ("members", "severity", "worse"),
    [
        (["a"], "fatal", False),
        (["a"], "degraded", False),
        (["a", "b"], "fatal", False),
        (["a", "c"], "fatal", True),
        (["a"], "unknown", False),
    ],
)
def test_a_need_is_worse_with_a_new_member_and_not_with_fewer(members: list[str], severity: str, worse: bool) -> None:
    found = need_causes.is_worse(members=members, severity=severity, than_members=["a", "b"], than_severity="fatal")
    assert found is worse


def test_a_higher_severity_is_worse() -> None:
    assert need_causes.is_worse(members=["a"], severity="fatal", than_members=["a"], than_severity="degraded")


def test_a_cause_that_began_later_did_not_exist() -> None:
    assert need_causes.lasts_since(NOW, NOW)
    assert need_causes.lasts_since(None, NOW)
    assert not need_causes.lasts_since(NOW + timedelta(seconds=1), NOW)
