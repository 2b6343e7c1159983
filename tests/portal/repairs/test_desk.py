"""The repair desk: what people do with a repair, what proves the machine sound, and what the log keeps of it."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from kcover import audit
from kcover.repairs import repairs
from kcover.repairs.repairs import Move, Part, State, Terms
from kcover_portal.checks.models import ValidatedNode
from kcover_portal.fleet.models import Hardware, Node
from kcover_portal.ledger.models import Entry
from kcover_portal.lib.errors import FieldError
from kcover_portal.repairs import queries, services
from kcover_portal.repairs.models import Repair, VendorTerms
from kcover_portal.repairs.queries import needs
from tests.portal.api.conftest import add_node
from tests.portal.repairs.conftest import GPU, Report, add_validation

pytestmark = pytest.mark.django_db
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
BACK = (Move.ACCEPT, Move.HAND_OVER, Move.RETURN)


def acts(repair: Repair) -> list[audit.Act]:
    rows = Entry.objects.filter(subject=f"repair {repair.pk}").order_by("sequence")
    return [audit.from_entry(row) for row in rows]


def act(repair: Repair, move: Move, *, now: datetime, **details: Any) -> Repair:
    return services.act(repair, move, details, actor="user:bob", reason="because", now=now)


def code(error: pytest.ExceptionInfo[Any]) -> str:
    found: str = error.value.reason.code
    return found


def test_a_repair_from_the_report_to_the_proof(report: Report, node: Node, now: datetime) -> None:
    row = report(vendor="ACME", due=now + HOUR)
    assert (row.state, row.opened_by, row.assignee, row.reported_at) == ("reported", "user:ann", "", now)
    assert [reason.code for reason in row.reasons] == ["repair_reported_by_because"]
    act(row, Move.ACCEPT, now=now)
    act(row, Move.HAND_OVER, now=now, action="replace", assignee="rma@acme", due=now + 2 * HOUR)
    act(row, Move.RETURN, now=now + HOUR, part_serial="S-new")
    add_validation(node, at=now + HOUR)
    closed = act(row, Move.CLOSE, now=now + 2 * HOUR)
    assert (closed.state, closed.part.serial, closed.action) == ("closed", "S-new", "replace")
    row.refresh_from_db()
    assert (row.assignee, row.due, row.closed_at) == ("rma@acme", now + 2 * HOUR, now + 2 * HOUR)
    opened, *moved = acts(row)
    assert isinstance(opened, audit.RepairOpened)
    assert (opened.part, opened.vendor, opened.reason) == (GPU, "ACME", "it sparks")
    assert [(one.before, one.state) for one in moved if isinstance(one, audit.RepairMoved)] == [
        (State.REPORTED, State.ACCEPTED),
        (State.ACCEPTED, State.IN_REPAIR),
        (State.IN_REPAIR, State.RETURNED),
        (State.RETURNED, State.CLOSED),
    ]
    assert moved[2].changed == {  # type: ignore[attr-defined]
        "part_serial": audit.Change(before="S-gpu-1", after="S-new"),
        "removed_serial": audit.Change(before="", after="S-gpu-1"),
    }
    assert moved[-1].because.parts[0].code == "repair_passed_by_name"  # type: ignore[attr-defined]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("move", Move)
def test_a_move_changes_a_row_only_where_the_life_cycle_allows_it(
    report: Report, node: Node, now: datetime, move: Move, state: State
) -> None:
    row = report()
    Repair.objects.filter(pk=row.pk).update(state=state, returned_at=now, refused_at=now)
    add_validation(node, at=now)
    before = Entry.objects.count()
    if move in repairs.possible(state):
        assert act(row, move, now=now).stage is repairs.TRANSITIONS[move].target
        assert Entry.objects.count() == before + 1
    else:
        with pytest.raises(services.RepairRefused):
            act(row, move, now=now)
        row.refresh_from_db()
        assert (row.stage, Entry.objects.count()) == (state, before)


@pytest.mark.parametrize(
    ("found", "refusal", "state"),
    [
        ("error", "repair_not_validated", "returned"),
        ("cancelled", "repair_not_validated", "returned"),
        ("waiting", "repair_validation_runs", "validating"),
        ("failed", "repair_validation_failed", "accepted"),
        ("passed", None, "validating"),
    ],
)
def test_a_validation_since_the_return_is_the_proof(
    report: Report, node: Node, now: datetime, found: str, refusal: str | None, state: str
) -> None:
    row = report(*BACK)
    add_validation(node, at=now, state=found)
    if refusal is None:
        with transaction.atomic():
            assert act(row, Move.CLOSE, now=now).state == "closed"
            transaction.set_rollback(True)
    else:
        with pytest.raises(services.RepairRefused) as error:
            act(row, Move.CLOSE, now=now)
        assert code(error) == refusal
    services.look_at_validations(now=now)
    assert services.look_at_validations(now=now) == 0
    row.refresh_from_db()
    assert row.state == state


def test_earlier_and_foreign_validations_are_no_proof(report: Report, node: Node, now: datetime) -> None:
    row = report(*BACK)
    add_validation(node, at=now - HOUR)
    add_validation(add_node(node.cluster, "gpu-2", now), at=now)
    ValidatedNode.objects.filter(pk=add_validation(node, at=now).nodes.get().pk).update(machine="another")
    with pytest.raises(services.RepairRefused) as error:
        act(row, Move.CLOSE, now=now)
    assert code(error) == "repair_not_validated"


def test_a_later_validation_that_passes_does_not_undo_a_failure(report: Report, node: Node, now: datetime) -> None:
    row = report(*BACK)
    add_validation(node, at=now, state="failed")
    add_validation(node, at=now + HOUR)
    with pytest.raises(services.RepairRefused) as error:
        act(row, Move.CLOSE, now=now + HOUR)
    assert code(error) == "repair_validation_failed"


def test_a_failed_machine_is_repaired_again(report: Report, node: Node, now: datetime) -> None:
    row = report(*BACK)
    add_validation(node, at=now, state="failed")
    services.look_at_validations(now=now)
    moved = acts(row)[-1]
    assert isinstance(moved, audit.RepairMoved)
    assert (moved.state, moved.because.code if moved.because else "") == (State.ACCEPTED, "repair_failed_validation")
    later = now + HOUR
    for move in (Move.HAND_OVER, Move.RETURN):
        act(row, move, now=later)
    add_validation(node, at=later)
    assert act(row, Move.CLOSE, now=later).state == "closed"


def test_a_machine_that_is_gone_is_never_proved(report: Report, node: Node, now: datetime) -> None:
    row = report(*BACK)
    add_validation(node, at=now)
    node.delete()
    row.refresh_from_db()
    assert (row.node, row.node_name) == (None, "gpu-1")
    with pytest.raises(services.RepairRefused):
        act(row, Move.CLOSE, now=now)
    assert services.look_at_validations(now=now) == 0


def test_accepting_a_repair_makes_the_actor_its_owner_unless_one_is_named(report: Report, now: datetime) -> None:
    row = report()
    assert act(row, Move.ACCEPT, now=now).assignee == "bob"
    refused = act(row, Move.REFUSE, now=now)
    assert (refused.state, refused.assignee, refused.due) == ("refused", "ann", None)
    assert act(row, Move.ACCEPT, now=now).assignee == "ann"


def test_a_refused_repair_of_the_portal_has_no_assignee(node: Node, now: datetime) -> None:
    row = services.report(node, part=GPU, details={"assignee": "cy"}, actor="system", now=now)
    assert act(row, Move.REFUSE, now=now).assignee == ""


def test_a_refusal_takes_the_action_and_hands_the_repair_back(report: Report, now: datetime) -> None:
    refused = act(report(), Move.REFUSE, now=now, action="reseated", assignee="cy")
    assert (refused.action, refused.assignee, refused.due) == ("reseated", "ann", None)


def test_a_date_that_no_calendar_shows_is_refused(report: Report, now: datetime) -> None:
    for due in (datetime(9999, 12, 31, 23, 59, tzinfo=UTC), now.replace(year=now.year + 11)):
        with pytest.raises(FieldError) as error:
            act(report(), Move.ACCEPT, now=now, due=due)
        assert (code(error), error.value.field) == ("repair_due_far", "due")
        Repair.objects.all().delete()


def test_a_part_has_one_open_repair(report: Report, node: Node, now: datetime) -> None:
    row = report()
    with pytest.raises(services.RepairRefused) as error:
        report()
    assert (code(error), dict(error.value.reason.params)["repair"]) == ("repair_open_already", str(row.pk))
    other = services.report(node, part=Part(kind="nic"), actor="user:ann", now=now)
    with pytest.raises(services.RepairRefused):
        services.change(
            other,
            {"part_kind": GPU.kind, "part_serial": GPU.serial, "part_slot": GPU.slot},
            actor="user:ann",
            reason="",
            now=now,
        )
    with pytest.raises(IntegrityError), transaction.atomic():
        Repair.objects.filter(pk=other.pk).update(part_kind=GPU.kind, part_serial=GPU.serial, part_slot=GPU.slot)
    Repair.objects.filter(pk=row.pk).update(state="closed")
    assert report().pk != row.pk


def test_a_change_is_written_once_with_its_reason(report: Report, now: datetime) -> None:
    row = report()
    details = {"ticket": "OPS-1", "due": now + HOUR}
    for _ in range(2):
        services.change(row, details, actor="user:bob", reason="agreed", now=now)
    _opened, changed = acts(row)
    assert isinstance(changed, audit.RepairChanged)
    assert (set(changed.changed), changed.reason) == ({"ticket", "due"}, "agreed")
    Repair.objects.update(state="closed")
    with pytest.raises(services.RepairRefused):
        services.change(row, {"ticket": "OPS-2"}, actor="user:bob", reason="", now=now)


@pytest.mark.parametrize(
    ("details", "part", "field"),
    [
        ({"due": timedelta(0)}, GPU, "due"),
        ({"due": -HOUR}, GPU, "due"),
        ({}, Part(kind="GPU"), "part"),
        ({}, Part(kind=""), "part"),
        ({}, Part(kind="a b"), "part"),
    ],
)
def test_bad_details_are_named(node: Node, now: datetime, details: dict[str, Any], part: Part, field: str) -> None:
    given = {name: now + value for name, value in details.items()}
    with pytest.raises(FieldError) as error:
        services.report(node, part=part, details=given, actor="user:ann", now=now)
    assert error.value.field == field


def test_the_condition_and_the_reason_agree_row_by_row(node: Node, now: datetime) -> None:
    """All combinations of what the rule reads; the dates lie just before, at and after its limits."""
    gone = Node.objects.create(cluster=node.cluster, name="gone", created_at=now, gone_at=now)
    ages = [repairs.UNATTENDED_AFTER + step for step in (-SECOND, timedelta(0), SECOND)]
    Repair.objects.bulk_create(
        Repair(
            cluster=node.cluster,
            node=place,
            node_name="n",
            part_slot=str(number),
            assignee=assignee,
            due=now + due if due is not None else None,
            opened_by="user:ann",
            state=state,
            reported_at=now - age,
        )
        for number, (state, place, assignee, due, age) in enumerate(
            itertools.product(State, (node, gone, None), ("", "ann"), (None, -SECOND, timedelta(0), SECOND), ages)
        )
    )
    selected = set(queries.left_to_people(now=now).values_list("pk", flat=True))
    rows = list(Repair.objects.select_related("node"))
    assert {row.pk for row in rows if needs.why(row, now=now) is not None} == selected
    assert 0 < len(selected) < len(rows) == 504
    late = {row.pk for row in rows if row.due is not None and row.due < now and row.state != State.CLOSED}
    assert set(Repair.objects.filter(needs.late(now=now)).values_list("pk", flat=True)) == late


def test_a_refused_repair_of_a_removed_node_needs_no_person(report: Report, node: Node, now: datetime) -> None:
    row = report(Move.REFUSE)
    later = now + repairs.UNATTENDED_AFTER
    assert queries.left_to_people(now=later).exists()
    Node.objects.update(gone_at=now)
    assert not queries.left_to_people(now=later).exists()
    assert needs.why(Repair.objects.select_related("node").get(pk=row.pk), now=later) is None


def test_the_terms_of_a_vendor_are_the_date_of_its_repairs(report: Report, node: Node, now: datetime) -> None:
    terms = Terms(accept_days=2, return_days=14)
    for _ in range(2):
        services.set_terms("ACME", terms, actor="user:ann", reason="contract", now=now)
    assert Entry.objects.filter(verb="vendor_terms.changed", cluster="").count() == 1
    row = report(vendor="ACME")
    assert row.due == now + 2 * DAY
    assert act(row, Move.ACCEPT, now=now).due == now + 2 * DAY
    assert act(row, Move.HAND_OVER, now=now + DAY).due == now + 15 * DAY
    other = services.report(node, part=Part(kind="nic"), details={"vendor": "B"}, actor="user:ann", now=now)
    assert other.due is None
    own = services.report(
        node, part=Part(kind="disk"), details={"vendor": "ACME", "due": now + HOUR}, actor="user:ann", now=now
    )
    assert own.due == now + HOUR
    act(own, Move.ACCEPT, now=now)
    assert act(own, Move.HAND_OVER, now=now, due=None).due is None
    assert services.set_terms("ACME", Terms(), actor="user:ann", reason="over", now=now) is None
    assert not VendorTerms.objects.exists()


@pytest.mark.parametrize(
    ("vendor", "terms", "field"),
    [
        (" ", Terms(accept_days=1), "vendor"),
        ("ACME", Terms(accept_days=0), "accept_days"),
        ("ACME", Terms(return_days=366), "return_days"),
    ],
)
def test_bad_terms_are_named(db: None, now: datetime, vendor: str, terms: Terms, field: str) -> None:
    with pytest.raises(FieldError) as error:
        services.set_terms(vendor, terms, actor="user:ann", reason="x", now=now)
    assert error.value.field == field


def test_a_machine_whose_validation_proved_nothing_is_returned_again(report: Report, node: Node, now: datetime) -> None:
    row = report(*BACK)
    validation = add_validation(node, at=now, state="waiting")
    assert services.look_at_validations(now=now) == 1
    ValidatedNode.objects.filter(validation=validation).update(state="cancelled")
    assert services.look_at_validations(now=now + HOUR) == 1
    row.refresh_from_db()
    assert (row.state, row.returned_at) == ("returned", now)


def test_a_machine_that_cannot_be_proved_goes_back_and_closes_with_a_later_proof(
    report: Report, node: Node, now: datetime
) -> None:
    row = report(*BACK)
    add_validation(node, at=now)
    act(row, Move.REFUSE, now=now + HOUR)
    with pytest.raises(services.RepairRefused):  # the proof is older than the refusal
        act(row, Move.CLOSE, now=now + HOUR)
    add_validation(node, at=now + HOUR)
    assert act(row, Move.CLOSE, now=now + HOUR).state == "closed"


@pytest.fixture
def known(node: Node, now: datetime) -> Node:
    """The node, whose agent reports the serial number of its machine."""
    Hardware.objects.create(node=node, machine_serial="M1", changed_at=now)
    return node


def test_only_a_validation_of_the_same_machine_closes_a_repair(known: Node, report: Report, now: datetime) -> None:
    row = report(*BACK)
    assert (row.machine_serial, row.removed_serial) == ("M1", "")
    add_validation(known, at=now + HOUR, serial="M2")
    add_validation(known, at=now + HOUR, serial="M2", state="failed")
    assert services.look_at_validations(now=now + HOUR) == 0
    with pytest.raises(services.RepairRefused) as error:
        act(row, Move.CLOSE, now=now + 2 * HOUR)
    assert code(error) == "repair_other_machine"
    add_validation(known, at=now + 2 * HOUR, serial="M1")
    act(row, Move.CLOSE, now=now + 3 * HOUR)
    assert acts(row)[-1].because.parts[0].code == "repair_validation_passed"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("nccl", "asks"),
    [
        ([], True),
        ([{"name": "nccl", "status": "pass"}], True),
        ([{"name": "nccl_pair", "status": "skipped"}], True),
        ([{"name": "nccl", "status": "pass"}, {"name": "nccl_pair", "status": "pass", "value": 480.0}], False),
    ],
)
def test_a_machine_that_only_vouches_for_itself_asks_for_a_pair_test(
    known: Node, report: Report, now: datetime, nccl: list[dict[str, object]], asks: bool
) -> None:
    row = report(*BACK)
    add_validation(known, at=now + HOUR, serial="M1").nodes.update(nccl=nccl)
    act(row, Move.CLOSE, now=now + 2 * HOUR)
    because = acts(row)[-1].because  # type: ignore[attr-defined]
    assert ("repair_without_pair_test" in [part.code for part in because.parts]) is asks


def test_a_machine_that_the_vendor_exchanged(known: Node, now: datetime) -> None:
    row = services.report(known, part=Part(), actor="user:ann", reason="dead", now=now)
    for move in BACK:
        act(row, move, now=now, **({"machine_serial": "M2"} if move is Move.RETURN else {}))
    add_validation(known, at=now + HOUR, serial="M2")
    closed = act(row, Move.CLOSE, now=now + 2 * HOUR)
    assert (closed.machine_serial, closed.removed_serial) == ("M2", "M1")


@pytest.mark.parametrize(("given", "validated"), [("M1", ""), ("None", "M2")])
def test_with_an_unknown_number_the_name_of_the_node_counts(
    known: Node, now: datetime, given: str, validated: str
) -> None:
    row = services.report(
        known, part=Part(), details={"machine_serial": given}, actor="user:ann", reason="dead", now=now
    )
    for move in BACK:
        act(row, move, now=now)
    add_validation(known, at=now + HOUR, serial=validated)
    act(row, Move.CLOSE, now=now + 2 * HOUR)
    assert acts(row)[-1].because.parts[0].code == "repair_passed_by_name"  # type: ignore[attr-defined]
