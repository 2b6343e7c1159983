"""Where parts are and have been, and who has a part that two nodes report."""

import itertools
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kcover.machines import parts as core
from kcover.repairs.repairs import Move, Part as RepairPart
from kcover_portal.fleet.models import Cluster, Hardware, Node
from kcover_portal.fleet.services import parked_nodes
from kcover_portal.ledger.models import Entry
from kcover_portal.parts import queries, services, tasks
from kcover_portal.parts.models import Part, Placement
from kcover_portal.parts.services import placements
from kcover_portal.repairs import services as repairs
from kcover_portal.repairs.models import Repair
from kcover_portal.runtime.services import leases
from tests.portal.parts.conftest import fault, flags, inventory, places, tell

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def test_an_inventory_places_its_parts_and_a_heartbeat_changes_nothing(east: Cluster, now: datetime) -> None:
    whole = inventory("G0", "G1", machine="M1", board="Default string", nics=["N0"])
    tell(east, {"gpu-1": whole}, at=now)
    found = Placement.objects.order_by("pk").values_list("part__kind", "part__serial", "slot", "device")
    assert sorted(found) == [
        ("gpu", "G0", "0000:00:00", "GPU-G0"),
        ("gpu", "G1", "0000:01:00", "GPU-G1"),
        ("machine", "M1", "", ""),
        ("nic", "N0", "0000:a0:00.0", "mlx5_0"),
    ]
    with CaptureQueriesContext(
        connection,
    ) as ran:
        tell(east, {"gpu-1": whole}, at=now + HOUR, record=False)
    assert not [one for one in ran.captured_queries if "hardware" in one["sql"] or "parts_" in one["sql"]]
    assert services.record_changed(now=now + HOUR) == 0


@pytest.mark.parametrize("gpus", [1, 8])
def test_new_parts_cost_the_same_statements_in_any_number(east: Cluster, now: datetime, gpus: int) -> None:
    tell(east, {"gpu-1": inventory(*[f"G{index}" for index in range(gpus)], machine="M1")}, at=now, record=False)
    with CaptureQueriesContext(connection) as ran:
        services.record_changed(now=now)
    assert len(ran.captured_queries) == 16
    assert Placement.objects.count() == gpus + 1


def test_a_part_moves_to_another_slot_another_node_and_another_cluster(
    east: Cluster, west: Cluster, now: datetime
) -> None:
    tell(east, {"gpu-1": inventory("G0", "G1")}, at=now)
    tell(east, {"gpu-1": inventory("", "G1", "G0")}, at=now + HOUR)
    tell(east, {"gpu-1": inventory("", "G1")}, at=now + 2 * HOUR)
    tell(west, {"gpu-9": inventory("G0")}, at=now + 3 * HOUR)
    assert places("G0") == [
        ("gpu-1", "0000:00:00", False, ""),
        ("gpu-1", "0000:02:00", False, ""),
        ("gpu-9", "0000:00:00", True, ""),
    ]
    assert [row.until for row in Placement.objects.filter(part__serial="G0").order_by("since")] == [
        now + HOUR,
        now + 2 * HOUR,
        None,
    ]
    assert (places("G1"), flags("G0")) == ([("gpu-1", "0000:01:00", True, "")], [])


def test_a_gpu_that_is_lost_and_found_has_one_placement(east: Cluster, now: datetime) -> None:
    for hours, present in enumerate((("G0", "G1"), ("G0",), ("G0", "G1"))):
        tell(east, {"gpu-1": inventory(*present)}, at=now + hours * HOUR)
    assert places("G1") == [("gpu-1", "0000:01:00", True, "")]


def test_a_machine_that_is_replaced_under_the_same_name(east: Cluster, now: datetime) -> None:
    tell(east, {"gpu-1": inventory("G0", machine="M1")}, at=now)
    tell(east, {"gpu-1": inventory("G9", machine="M9")}, at=now + HOUR)
    assert places("M1") == [("gpu-1", "", False, "")]
    assert places("M9") == [("gpu-1", "", True, "")]


def test_a_forged_serial_number_takes_nothing_over(east: Cluster, now: datetime) -> None:
    tell(east, {"gpu-1": inventory("G0")}, at=now)
    owner = Node.objects.get(name="gpu-1")
    fault(owner, now + HOUR, gpu="G0")
    at = now + 2 * HOUR
    tell(east, {"gpu-1": None, "evil": inventory("G0")}, at=at)
    assert places("G0") == [("gpu-1", "0000:00:00", True, ""), ("evil", "0000:00:00", True, "claimed")]
    assert flags("G0") == []
    tell(east, {"gpu-1": None}, at=at + core.RECHECK_AFTER)
    assert places("G0") == [("gpu-1", "0000:00:00", True, ""), ("evil", "0000:00:00", True, "conflict")]
    assert flags("G0") == ["part_on_two_nodes"]
    evil = Node.objects.get(name="evil")
    fault(evil, at + HOUR, gpu="G0")
    rows = Placement.objects.filter(part__serial="G0").select_related("part", "node")
    assert [one.node for one in queries.faults_of(rows)] == [owner]
    (entry,) = Entry.objects.filter(verb="part.flagged")
    assert (entry.node, entry.data["serial"]) == ("evil", "G0")
    assert [row.node_name for row in queries.left_to_people()] == ["evil"]

    tell(east, {"gpu-1": inventory()}, at=at + 2 * HOUR)
    row = services.review(queries.left_to_people().get().pk, actor="user:ann", reason="moved", now=at + 3 * HOUR)
    assert (row.doubt, queries.left_to_people().count()) == ("", 0)
    with pytest.raises(services.ReviewRefused):
        services.review(row.pk, actor="user:ann", reason="again", now=at + 3 * HOUR)


def test_a_board_that_was_carried_over_faster_than_silence_is_noticed(east: Cluster, now: datetime) -> None:
    tell(east, {"gpu-1": inventory("G0")}, at=now)
    at = now + timedelta(minutes=5)
    tell(east, {"gpu-2": inventory("G0")}, at=at)
    assert places("G0")[1] == ("gpu-2", "0000:00:00", True, "claimed")
    tell(east, {"gpu-2": None}, at=now + core.SILENT_FOR)
    assert places("G0") == [("gpu-1", "0000:00:00", False, ""), ("gpu-2", "0000:00:00", True, "")]
    assert [row.until for row in Placement.objects.filter(node_name="gpu-1")] == [now]


def test_a_part_of_a_node_that_left_the_cluster(east: Cluster, now: datetime) -> None:
    tell(east, {"gpu-1": inventory("G0")}, at=now)
    Node.objects.filter(name="gpu-1").update(gone_at=now + HOUR)
    tell(east, {"gpu-2": inventory("G0")}, at=now + 2 * HOUR)
    assert places("G0") == [("gpu-1", "0000:00:00", False, ""), ("gpu-2", "0000:00:00", True, "")]
    assert Placement.objects.get(node_name="gpu-1").until == now + HOUR


def a_repair(node: Node, now: datetime, *moves: Move, **returned: str) -> Repair:
    row = repairs.report(
        node, part=RepairPart(kind="gpu", serial="G0", slot="0"), actor="user:ann", reason="sparks", now=now
    )
    for move in moves:
        given = returned if move is Move.RETURN else {}
        repairs.act(row, move, given, actor="user:ann", reason="next", now=now + HOUR)
    row.refresh_from_db()
    return row


RETURNED = (Move.ACCEPT, Move.HAND_OVER, Move.RETURN)


def test_a_board_that_a_provider_took_back_is_recognized_elsewhere(east: Cluster, west: Cluster, now: datetime) -> None:
    tell(east, {"gpu-1": inventory("G0", "G1")}, at=now)
    row = a_repair(Node.objects.get(name="gpu-1"), now, *RETURNED, part_serial="G7")
    assert (row.part_serial, row.removed_serial) == ("G7", "G0")
    tell(east, {"gpu-1": inventory("G7", "G1")}, at=now + DAY)
    tell(west, {"gpu-9": inventory("G0")}, at=now + 9 * DAY)
    assert (flags("G0"), flags("G7"), flags("G1")) == (["part_removed_by_repair"], [], [])
    assert [(one.node_name, one.reviewed_at) for one in queries.left_to_people()] == [("gpu-9", None)]


@pytest.mark.parametrize(
    ("moves", "flag"), [((Move.REFUSE,), "part_returned_of_repair"), ((Move.ACCEPT,), "part_returned_of_repair")]
)
def test_a_part_whose_repair_did_not_prove_it(east: Cluster, now: datetime, moves: tuple[Move, ...], flag: str) -> None:
    tell(east, {"gpu-1": inventory("G0")}, at=now)
    a_repair(Node.objects.get(name="gpu-1"), now, *moves)
    tell(east, {"gpu-1": inventory()}, at=now + DAY)
    tell(east, {"gpu-1": inventory("", "G0")}, at=now + 2 * DAY)
    assert flags("G0") == []  # its own machine, whose repair is open
    tell(east, {"gpu-1": inventory()}, at=now + 3 * DAY)
    tell(east, {"gpu-2": inventory("G0")}, at=now + 4 * DAY)
    assert flags("G0") == [flag]


def test_a_part_that_was_proved_in_place_may_move(east: Cluster, now: datetime) -> None:
    tell(east, {"gpu-1": inventory("G0")}, at=now)
    row = a_repair(Node.objects.get(name="gpu-1"), now)
    Repair.objects.filter(pk=row.pk).update(state="closed", closed_at=now + DAY)
    tell(east, {"gpu-1": inventory()}, at=now + 2 * DAY)
    tell(east, {"gpu-2": inventory("G0")}, at=now + 3 * DAY)
    assert flags("G0") == []


def test_a_part_that_left_with_faults_and_no_repair(east: Cluster, now: datetime) -> None:
    tell(east, {"gpu-1": inventory("G0", "G1", "G2")}, at=now)
    node = Node.objects.get(name="gpu-1")
    fault(node, now + DAY, gpu="G0")
    fault(node, now + DAY, gpu="G1", severity="warning")
    fault(node, now + DAY, device="0000:02:00.0")  # before its UUID was known
    later = now + 40 * DAY
    tell(east, {"gpu-1": inventory("", "G1")}, at=now + 2 * DAY)
    tell(east, {"gpu-2": inventory("G0", "", "G2")}, at=later)
    tell(east, {"gpu-1": inventory()}, at=later)
    tell(east, {"gpu-3": inventory("G1")}, at=later + DAY)
    assert (flags("G0"), flags("G1"), flags("G2")) == (
        ["part_returned_with_faults"],
        [],
        ["part_returned_with_faults"],
    )


def test_serial_numbers_invented_by_one_node_are_bounded(
    east: Cluster, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "MAX_NEW_A_DAY", 4)
    monkeypatch.setattr(core, "MAX_OF_NODE", 6)
    tell(east, {"gpu-1": inventory("G0")}, at=now)
    for round_ in range(4):
        tell(east, {"evil": inventory(f"X{round_}0", f"X{round_}1")}, at=now + round_ * HOUR)
    assert Part.objects.count() == 5
    assert Placement.objects.filter(node_name="evil", until=None).count() == 0  # the latest inventory has other parts
    for day in range(1, 5):
        tell(east, {"evil": inventory(f"Y{day}0", f"Y{day}1")}, at=now + day * 2 * DAY)
    assert Placement.objects.filter(node_name="evil").count() <= 6
    assert places("G0") == [("gpu-1", "0000:00:00", True, "")]


def test_an_inventory_that_changes_while_it_is_recorded_is_recorded_again(
    east: Cluster, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(east, {"gpu-1": inventory("G0")}, at=now, record=False)
    stale = list(queries.unrecorded().select_related("node__cluster"))
    tell(east, {"gpu-1": inventory("G1")}, at=now + HOUR, record=False)
    monkeypatch.setattr(queries, "unrecorded", lambda: _Rows(stale))
    assert services.record_changed(now=now + HOUR) == 0
    assert not Placement.objects.exists()
    monkeypatch.undo()
    assert services.record_changed(now=now + HOUR) == 1
    assert (places("G0"), places("G1")) == ([], [("gpu-1", "0000:00:00", True, "")])
    assert Hardware.objects.get().unrecorded is False


def test_a_sweep_ends_in_time_and_no_second_one_joins_it(east: Cluster, now: datetime) -> None:
    """A new DaemonSet changes thousands of inventories, and decisions need the workers' threads meanwhile."""
    tell(east, {f"gpu-{number}": inventory(f"G{number}") for number in range(4)}, at=now, record=False)
    seconds = itertools.count(0.0, placements.SWEEP_SECONDS / 2)
    assert services.record_changed(now=now, monotonic=lambda: next(seconds)) == 1
    held = timezone.now()
    assert leases.acquire(tasks.LEASE, holder="other", until=held + HOUR, now=held)
    tasks.sweep()
    assert queries.unrecorded().count() == 3
    leases.release(tasks.LEASE, holder="other", now=timezone.now())
    tasks.sweep()
    assert not queries.unrecorded().exists()


class _Rows(list[Hardware]):
    """Rows that were read before a change, as a query set."""

    def select_related(self, *_names: str) -> "_Rows":
        return self

    def order_by(self, *_names: str) -> "_Rows":
        return self


def test_a_node_whose_row_was_deleted_may_come_back_with_its_parts(east: Cluster, now: datetime) -> None:
    """Parked nodes are deleted when they fall silent. Such a node must not keep others from being recorded."""
    tell(east, {"gpu-1": inventory("G0")}, at=now)
    parked_nodes.remove_silent(east, now=now + 3 * DAY)
    tell(east, {"gpu-1": inventory("G0"), "gpu-2": inventory("G2")}, at=now + 3 * DAY)
    assert places("G0") == [("gpu-1", "0000:00:00", False, ""), ("gpu-1", "0000:00:00", True, "")]
    assert places("G2") == [("gpu-2", "0000:00:00", True, "")]
