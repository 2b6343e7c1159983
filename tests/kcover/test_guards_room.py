"""The room of each guard: so many more nodes pass it, one after the other, and the next one does not."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kcover.decisions import guards
from tests.kcover.test_guards_evaluate import NOW, facts, settings, window
from tests.proof_verifier import verifier

COUNTS = st.integers(0, 12)


@given(
    limit=st.one_of(st.integers(1, 12), st.sampled_from(["5%", "50%", "100%"])),
    percent=st.integers(1, 100),
    isolated=COUNTS,
    taken=COUNTS,
    healthy=COUNTS,
    eligible=st.integers(1, 30),
)
def test_as_many_nodes_pass_each_guard_as_it_has_room(
    limit: int | str, percent: int, isolated: int, taken: int, healthy: int, eligible: int
) -> None:
    found = facts(
        eligible=eligible,
        isolated_lately=isolated,
        slots=guards.Slots(by="cluster", name="east", eligible=eligible, taken=taken),
        pool=guards.Pool(name="a100", eligible=eligible, healthy=healthy),
    )
    one_guard: dict[str, dict[str, Any]] = {
        "breaker": {"breaker": {"enabled": True, "limit": limit}},
        "budget": {"budget": {"limit": limit}},
        "floor": {"floor": {"percent": percent}},
    }
    for guard, patch in one_guard.items():
        wanted = settings(**patch)
        room = guards.headroom(wanted, found)
        assert set(room) == {guard}
        passed, later = 0, found
        while not guards.isolation(wanted, later, now=NOW).held:
            passed += 1
            later = replace(
                later,
                isolated_lately=later.isolated_lately + 1,
                slots=replace(later.slots, taken=later.slots.taken + 1),
                pool=replace(later.pool, healthy=later.pool.healthy - 1),
            )
        assert room[guard] == passed


def test_without_eligible_nodes_there_is_no_room() -> None:
    wanted = settings(breaker={"enabled": True, "limit": 3}, floor={"percent": 10})
    assert guards.headroom(wanted, facts(eligible=0)) == {"breaker": 0, "floor": 0}
    assert guards.headroom(settings(), facts()) == {}


@pytest.mark.parametrize("covers", [True, False])
def test_the_verifier_of_proofs_reads_windows_by_rack(*, covers: bool) -> None:
    wanted, found = settings(), facts(maintenance=(window(scope="rack", name="A, B", covers=covers),))
    made = guards.figures(wanted, found, act=guards.ISOLATION)
    check = verifier.Guards(made["settings"], made["facts"], at=NOW, rule=None, excluded=False).check
    assert bool(guards.isolation(wanted, found, now=NOW).held) is covers
    if covers:
        with pytest.raises(Exception, match="maintenance"):
            check("isolation", ())
    else:
        assert "maintenance" in [one.guard for one in check("isolation", ())]


@given(limit=st.one_of(st.integers(1, 5), st.sampled_from(["10%", "60%"])), taken=COUNTS, holds=st.booleans())
def test_the_verifier_of_proofs_counts_groups_as_the_guards_do(*, limit: int | str, taken: int, holds: bool) -> None:
    wanted = settings(budget={"scopes": [{"limit": 1, "pools": ["b200"]}, {"limit": limit, "pools": ["a100"]}]})
    slots = guards.Slots(by="pool", name="a100", eligible=9, taken=taken)
    found = facts(scoped={"1": slots}, holds_slot=holds)
    verdict = guards.isolation(wanted, found, now=NOW)
    assert bool(verdict.held) is (not holds and guards.in_scopes(wanted, found)[1] < 1)
    made = guards.figures(wanted, found, act=guards.ISOLATION)
    assert made["settings"]["budget"]["scopes"] == [None, {"limit": limit}]
    check = verifier.Guards(made["settings"], made["facts"], at=NOW, rule=None, excluded=False).check
    if verdict.held:
        with pytest.raises(Exception, match="budget"):
            check("isolation", ())
    else:
        assert [one.guard for one in check("isolation", ())].count("budget") == 1
