"""Approvals: bound to what was asked, in time, by the right people; anything else does not count, and says why."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kcover import reasons
from kcover.decisions import approval

ASKED = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
SUBJECT = approval.Subject(rescue=7, step=2, plan_hash="abc", node="gpu-1", uid="m-1")


def request(**changes: Any) -> approval.Request:
    made = approval.Request(subject=SUBJECT, requested_by="user:carl", requested_at=ASKED, holds=HOUR)
    return replace(made, **changes)


def vote(by: str = "user:anna", *, after: timedelta = SECOND, **changes: Any) -> approval.Vote:
    return replace(approval.Vote(subject=SUBJECT, approved=True, by=by, at=ASKED + after), **changes)


def check(
    *votes: approval.Vote, after: timedelta = HOUR / 2, actual: approval.Subject = SUBJECT, **changes: Any
) -> approval.Answer:
    healed = changes.pop("healed", False)
    return approval.check(request(**changes), votes, actual=actual, healed=healed, now=ASKED + after)


def said(answer: approval.Answer) -> list[str]:
    return [str(one) for one in answer.because]


def test_one_approval_is_enough_by_default() -> None:
    answer = check(vote())
    assert isinstance(answer, approval.Approved)
    assert (answer.by, answer.until) == (("user:anna",), ASKED + SECOND + HOUR)
    assert said(answer) == ["Approved by anna, valid until 2026-11-21 09:00:01 UTC."]


def test_no_answer_yet() -> None:
    answer = check(approvers=2)
    assert isinstance(answer, approval.Waiting)
    assert answer.missing == 2
    assert said(answer) == ["2 of 2 approvals are missing. The request expires at 2026-11-21 09:00:00 UTC."]


@pytest.mark.parametrize(("after", "kind"), [(HOUR - SECOND, approval.Waiting), (HOUR, approval.Expired)])
def test_a_request_expires_at_its_end(after: timedelta, kind: type[approval.Answer]) -> None:
    answer = check(after=after)
    assert isinstance(answer, kind)
    if kind is approval.Expired:
        assert said(answer) == ["Not enough approvals by 2026-11-21 09:00:00 UTC. The node stays as it is."]


def test_an_approval_is_valid_as_long_as_a_request_stands() -> None:
    yes = vote(after=HOUR / 2)
    assert isinstance(check(yes, after=HOUR / 2), approval.Approved)
    assert isinstance(check(yes, after=HOUR * 1.5 - SECOND), approval.Approved)
    assert isinstance(check(yes, after=HOUR * 1.5), approval.Expired)


# --- two persons


def test_two_required_approvals_are_needed() -> None:
    one = check(vote(), approvers=2)
    assert isinstance(one, approval.Waiting)
    assert one.missing == 1
    two = check(vote("user:ben", after=2 * SECOND), vote(), approvers=2)
    assert isinstance(two, approval.Approved)
    assert (two.by, two.until) == (("user:anna", "user:ben"), ASKED + SECOND + HOUR)
    assert said(two) == ["Approved by anna, ben, valid until 2026-11-21 09:00:01 UTC."]


def test_two_votes_of_one_person_count_once() -> None:
    answer = check(vote(), vote(after=2 * SECOND), approvers=2)
    assert isinstance(answer, approval.Waiting)
    assert answer.missing == 1


def test_of_three_approvals_the_two_that_hold_longest_count() -> None:
    votes = [vote("a"), vote("b", after=2 * SECOND), vote("c", after=3 * SECOND)]
    answer = check(*votes, approvers=2)
    assert isinstance(answer, approval.Approved)
    assert (answer.by, answer.until) == (("a", "b", "c"), ASKED + 2 * SECOND + HOUR)
    late = check(*votes, approvers=2, after=HOUR + SECOND)
    assert isinstance(late, approval.Approved)
    assert late.by == ("b", "c")
    assert isinstance(check(*votes, approvers=2, after=HOUR + 2 * SECOND), approval.Expired)


@pytest.mark.parametrize("approvers", [1, 2])
def test_inv_44_the_requester_does_not_approve(approvers: int) -> None:
    answer = check(vote("user:carl"), approvers=approvers)
    assert isinstance(answer, approval.Waiting)
    assert answer.missing == approvers
    assert said(answer)[1:] == ["carl made the request; someone else must approve it."]


# --- no


def test_one_denial_is_enough() -> None:
    no = vote("user:ben", approved=False, after=2 * SECOND)
    for votes in ((vote(), no), (no, vote()), (no, vote(), vote("user:dora"))):
        answer = check(*votes, approvers=2)
        assert isinstance(answer, approval.Rejected)
        assert (answer.by, answer.because) == ("user:ben", (reasons.of("rejected", by="user:ben"),))


def test_the_requester_can_reject() -> None:
    answer = check(vote(), vote("user:carl", approved=False, after=2 * SECOND), requesters=("user:dora",), approvers=2)
    assert (type(answer), answer.because) == (approval.Rejected, (reasons.of("rejected", by="user:carl"),))
    assert isinstance(check(vote("user:dora", approved=False), requesters=("user:dora",)), approval.Rejected)


def test_a_denial_may_have_a_reason() -> None:
    answer = check(vote(approved=False, reason="a run ends at noon"))
    assert answer.because == (reasons.of("rejected_because", by="user:anna", why="a run ends at noon"),)


def test_a_denial_after_ones_own_approval_counts() -> None:
    answer = check(vote(), vote(approved=False, after=2 * SECOND))
    assert isinstance(answer, approval.Rejected)


def test_a_denial_does_not_expire() -> None:
    assert isinstance(check(vote(approved=False), after=9 * HOUR), approval.Rejected)


@pytest.mark.parametrize("changes", [{"by": "token:ai"}, {"subject": replace(SUBJECT, plan_hash="x")}])
def test_a_denial_that_does_not_count_rejects_nothing(changes: dict[str, Any]) -> None:
    assert isinstance(check(replace(vote(approved=False), **changes)), approval.Waiting)


# --- what a yes is bound to

OTHERS = [
    ("rescue", 8, "7", "8"),
    ("step", 3, "2", "3"),
    ("plan_hash", "abd", "abc", "abd"),
    ("node", "gpu-2", "gpu-1", "gpu-2"),
    ("uid", "m-2", "m-1", "m-2"),
]


@pytest.mark.parametrize(("part", "other", "asked", "found"), OTHERS)
def test_a_changed_plan_voids_the_request(part: str, other: Any, asked: str, found: str) -> None:
    answer = check(vote(), actual=replace(SUBJECT, **{part: other}))
    assert isinstance(answer, approval.Void)
    assert answer.because == (reasons.of("approval_void", part=reasons.of(f"part_{part}"), asked=asked, actual=found),)


@pytest.mark.parametrize(("part", "other", "asked", "found"), OTHERS)
def test_a_vote_on_another_request_does_not_count(part: str, other: Any, asked: str, found: str) -> None:
    answer = check(vote(subject=replace(SUBJECT, **{part: other})))
    assert isinstance(answer, approval.Waiting)
    assert answer.because[1:] == (
        reasons.of("vote_void", by="user:anna", part=reasons.of(f"part_{part}"), asked=asked, voted=found),
    )


def test_inv_44_approving_after_the_fault_healed_is_a_no_op() -> None:
    for votes in ((), (vote(),), (vote(approved=False),)):
        answer = check(*votes, healed=True)
        assert isinstance(answer, approval.Void)
        assert said(answer) == ["The fault has cleared; there is nothing left to approve."]


@pytest.mark.parametrize(
    ("after", "counts", "why"),
    [
        (
            -SECOND,
            False,
            "anna answered at 2026-11-21 07:59:59 UTC, before the request was made; the answer does not count.",
        ),
        (0 * SECOND, True, ""),
        (HOUR - SECOND, True, ""),
        (HOUR, False, "anna answered at 2026-11-21 09:00:00 UTC, too late; the answer does not count."),
    ],
)
def test_a_vote_counts_until_the_request_ends(after: timedelta, counts: bool, why: str) -> None:
    answer = check(vote(after=after), after=HOUR)
    assert isinstance(answer, approval.Approved) is (counts and after > 0 * SECOND)
    if not counts:
        assert said(answer)[1:] == [why]
    assert isinstance(check(vote(after=after), after=max(after, 0 * SECOND)), approval.Approved) is counts


def test_a_vote_of_the_future_is_not_counted() -> None:
    answer = check(vote(after=HOUR / 2 + SECOND))
    assert isinstance(answer, approval.Waiting)
    assert len(answer.because) == 1
    assert isinstance(check(vote(after=HOUR / 2)), approval.Approved)


def test_votes_that_did_not_count_are_named_in_each_result() -> None:
    own = vote("user:carl")
    for answer in (
        check(own, vote()),
        check(own),
        check(own, after=HOUR),
        check(own, vote(approved=False)),
    ):
        assert said(answer)[1:] == ["carl made the request; someone else must approve it."]


VOTES = st.builds(
    approval.Vote,
    subject=st.sampled_from([SUBJECT, replace(SUBJECT, plan_hash="other"), replace(SUBJECT, node="gpu-2")]),
    approved=st.booleans() | st.just(True),
    by=st.sampled_from(["user:anna", "user:ben", "user:carl", "user:dora"]),
    at=st.integers(-600, 9000).map(lambda seconds: ASKED + timedelta(seconds=seconds)),
)


@given(st.lists(VOTES, max_size=8), st.integers(1, 2), st.integers(0, 9000), st.randoms())
def test_inv_43_no_step_runs_without_enough_of_the_right_people(
    votes: list[approval.Vote], approvers: int, seconds: int, chance: Any
) -> None:
    now = ASKED + timedelta(seconds=seconds)
    asked = request(approvers=approvers)
    answer = approval.check(asked, votes, actual=SUBJECT, healed=False, now=now)
    right = [one for one in votes if one.subject == SUBJECT and ASKED <= one.at <= now and one.at < ASKED + HOUR]
    people = {one.by for one in right if one.approved and one.by != "user:carl" and now < one.at + HOUR}
    refused = any(not one.approved for one in right)
    assert isinstance(answer, approval.Approved) is (len(people) >= approvers and not refused)
    assert isinstance(answer, approval.Rejected) is refused
    if isinstance(answer, approval.Approved):
        assert set(answer.by) == people
        assert now < answer.until
    shuffled = list(votes)
    chance.shuffle(shuffled)
    assert type(approval.check(asked, shuffled, actual=SUBJECT, healed=False, now=now)) is type(answer)


def controlled(by: str, *controllers: str, **more: Any) -> approval.Vote:
    return vote(by, controllers=controllers, **more)


def codes(answer: approval.Answer) -> list[str]:
    return [one.code for one in answer.because]


def test_inv_44_accounts_with_a_common_controller_are_one_person() -> None:
    answer = check(controlled("user:anna", "user:eve"), controlled("user:bert", "user:eve"), approvers=2)
    assert isinstance(answer, approval.Waiting)
    assert (answer.missing, codes(answer)) == (1, ["approval_waits", "vote_same_person"])
    third = check(
        controlled("user:anna", "user:eve"), controlled("user:bert", "user:eve"), vote("user:dora"), approvers=2
    )
    assert isinstance(third, approval.Approved)


def test_inv_44_a_vote_that_joins_two_people_leaves_one() -> None:
    answer = check(vote("user:anna"), vote("user:bert"), controlled("user:eve", "user:anna", "user:bert"), approvers=2)
    assert isinstance(answer, approval.Waiting)


@pytest.mark.parametrize(
    ("cast", "why"),
    [
        (vote("token:operator kco_1"), reasons.of("vote_of_program", by="token:operator kco_1")),
        (vote("user:olga"), reasons.of("vote_of_requester", by="user:olga")),
        (
            controlled("user:anna", "user:olga"),
            reasons.of("vote_controlled", by="user:anna", requester="user:olga"),
        ),
        (
            controlled("user:anna", "user:carl"),
            reasons.of("vote_controlled", by="user:anna", requester="user:carl"),
        ),
    ],
)
def test_inv_44_an_account_that_counts_as_the_requester_does_not_approve(
    cast: approval.Vote, why: reasons.Reason
) -> None:
    asked = request(requesters=("user:olga",))
    assert codes(check(cast, requesters=("user:olga",))) == ["approval_waits", why.code]
    assert approval.objection(asked, [], cast) == why


def test_an_objection_names_the_earlier_vote() -> None:
    earlier = [vote("user:anna"), vote("user:bert", approved=False)]
    refusal = approval.objection(request(approvers=2), earlier, controlled("user:eve", "user:anna"))
    assert refusal is not None
    assert (refusal.code, dict(refusal.params)) == ("vote_same_person", {"by": "user:eve", "other": "user:anna"})
    assert approval.objection(request(approvers=2), earlier, controlled("user:eve", "user:bert")) is None
    assert approval.objection(request(), [], controlled("user:anna", "user:carl", approved=False)) is None


NAMES = st.sampled_from(["user:a", "user:b", "user:c", "user:d", "user:e"])


@given(st.lists(st.tuples(NAMES, st.lists(NAMES, max_size=2)), max_size=5, unique_by=lambda one: one[0]))
def test_inv_44_no_admin_makes_more_people_than_there_are(cast: list[tuple[str, list[str]]]) -> None:
    """However accounts control each other, those that approve never share a controller, and none is a requester."""
    answer = check(*(controlled(by, *others) for by, others in cast), approvers=2, requested_by="user:a")
    if isinstance(answer, approval.Approved):
        reach = [{by, *others} for by, others in cast if by in answer.by]
        assert len(answer.by) >= 2
        assert all(not (one & other) for at, one in enumerate(reach) for other in reach[at + 1 :])
        assert not any("user:a" in one for one in reach)
