"""A node has a bounded number of open incidents; one more incident counts the faults beyond the bounds."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.db.models import Sum
from django.test.utils import CaptureQueriesContext

from kcover import reasons, wire
from kcover.faults import line_reading
from kcover.faults.fault import OVERFLOW, Fault
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import services
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.incidents.services import new_incidents, occurrences, overflow, record_faults
from kcover_portal.incidents.services.fault_columns import identity_of
from kcover_portal.incidents.services.fault_groups import group_of
from tests.portal.incidents.conftest import incoming, report, xid

Deliver = Callable[..., wire.Answer]

pytestmark = pytest.mark.usefixtures("listed_nodes")

LIMIT = overflow.MAX_OPEN_INCIDENTS_PER_KIND
PARKED_LIMIT = overflow.MAX_OPEN_INCIDENTS_PER_KIND_OF_PARKED_NODE
STATEMENTS_PER_UPDATED_INCIDENT = 5
STATEMENTS_OF_A_REPORT = 30


@pytest.fixture
def listed_nodes(east: Cluster, now: datetime) -> None:
    """The nodes of these tests are in the cluster."""
    for number in range(2):
        Node.objects.create(cluster=east, name=f"gpu-{number}", created_at=now, in_cluster=True)


def xids(count: int, *, code: int, start: int = 0, **more: object) -> list[Fault]:
    """One Xid on different GPUs."""
    return [
        Fault(kind="xid", code=code, pci=f"0000:{n % 256:02x}:{n // 256:02x}", source="kmsg", sequence=n, **more)
        for n in range(start, start + count)
    ]


def distinct(count: int, *, kind: str = "check", start: int = 0, **more: object) -> list[Fault]:
    """Different faults, each one line of the log."""
    return [
        Fault(kind=kind, code=f"c{number}", source="agent", sequence=number, **more)
        for number in range(start, start + count)
    ]


def own() -> int:
    """The number of open incidents besides the overflow incident."""
    return Incident.objects.filter(state="open").exclude(kind=OVERFLOW).count()


def counted() -> Incident:
    return Incident.objects.get(kind=OVERFLOW, state="open")


def distinct_faults(incident: Incident) -> int:
    """The number of distinct faults that an overflow incident names."""
    count = dict(reasons.from_json(incident.because).params)["count"]
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize("kind", ["check", "other", "agent"])
def test_a_report_opens_a_bounded_number_of_incidents(deliver: Deliver, now: datetime, kind: str) -> None:
    answer = deliver(report(*distinct(1_000, kind=kind), now=now))
    assert (answer.accepted, answer.duplicates) == (1_000, 0)
    assert own() == LIMIT
    assert (counted().count, distinct_faults(counted())) == (1_000 - LIMIT, 1_000 - LIMIT)
    assert counted().because["code"] == "faults_overflow"
    assert Incident.objects.aggregate(total=Sum("count"))["total"] == 1_000
    assert Occurrence.objects.filter(incident=counted()).count() <= occurrences.MAX_ROWS


def test_the_stored_reading_is_of_the_message_that_counts(deliver: Deliver, now: datetime) -> None:
    lines = [
        f"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {20000 + n}, Fatal, Link 30 LTSSM Fault Up" for n in range(80)
    ]
    faults = [
        Fault(kind="sxid", code=20000 + n, pci="0000:c1:00.0", source="kmsg", message=line, sequence=n)
        for n, line in enumerate(lines)
    ]
    for some in (faults[:70], faults[70:]):  # it is opened, and changed
        deliver(report(*some, now=now))
        found = counted()
        assert found.because["code"] == "faults_overflow"
        assert found.line_reading == line_reading.read(found.message).to_json(found.message)
        assert found.line.fault == ""


def test_a_storm_and_its_like_store_the_reading_of_their_message(east: Cluster, now: datetime) -> None:
    because = reasons.of("faults_overflow", count=1, limit=1)
    found, _ = services.keep_cluster_incident(east, kind="storm", code="x", because=because, now=now)
    assert found.line_reading == line_reading.read(str(because)).to_json(str(because))


def test_the_bound_of_open_incidents_is_by_kind(deliver: Deliver, now: datetime) -> None:
    deliver(report(*distinct(LIMIT), now=now))
    assert not Incident.objects.filter(kind=OVERFLOW).exists()
    deliver(report(*distinct(1, start=LIMIT), xid(79), now=now))
    assert Incident.objects.filter(kind="xid", code="79", state="open").exists()
    assert (own(), counted().count) == (LIMIT + 1, 1)


def test_a_report_of_several_kinds_opens_no_more(deliver: Deliver, now: datetime) -> None:
    faults = [*distinct(50), *distinct(50, kind="other", start=50)]
    deliver(report(*faults, now=now))
    assert own() == overflow.MAX_FAULTS_PER_REPORT
    deliver(report(*distinct(50), *distinct(50, kind="other", start=50), now=now, boot_id="boot-2"))
    assert own() == 100


def test_each_node_has_its_own_bounds(east: Cluster, now: datetime) -> None:
    nodes = [incoming(east, report(*distinct(LIMIT), node=f"gpu-{n}", now=now), at=now) for n in range(2)]
    services.ingest(nodes, now=now)
    assert own() == 2 * LIMIT
    assert not Incident.objects.filter(kind=OVERFLOW).exists()


def test_the_worst_faults_get_incidents_of_their_own(deliver: Deliver, now: datetime) -> None:
    harmless = [Fault(kind="xid", code=13, pci=f"0000:{n:02x}:00", source="kmsg", sequence=n) for n in range(LIMIT)]
    deliver(report(*harmless, xid(79, sequence=999), now=now))
    assert Incident.objects.filter(kind="xid", code="79", state="open").exists()
    assert (own(), counted().count, counted().is_user_fault) == (LIMIT, 1, True)


def test_an_overflow_is_as_bad_as_its_worst_fault(deliver: Deliver, now: datetime) -> None:
    gpus = {n: {"pci": f"0000:{n:02x}:00", "gpu_uuid": f"GPU-{n}"} for n in range(LIMIT + 1)}
    fatal = [Fault(kind="xid", code=79, source="kmsg", sequence=n, **gpu) for n, gpu in gpus.items()]
    deliver(report(*fatal, now=now))
    own_one = Incident.objects.filter(kind="xid").latest("pk")
    assert (counted().severity, counted().is_user_fault) == (own_one.severity, False)
    assert (counted().gpu_uuid, counted().device, counted().cause) == ("", "", None)


def test_a_fault_with_an_incident_is_counted_there(deliver: Deliver, now: datetime) -> None:
    deliver(report(*distinct(LIMIT + 10), now=now))
    first = Incident.objects.exclude(kind=OVERFLOW).earliest("pk")
    repeated = Fault(kind=first.kind, code=first.code, source="agent", sequence=5_000)
    deliver(report(repeated, now=now))
    first.refresh_from_db()
    assert (first.count, counted().count) == (2, 10)


def test_lines_that_come_again_are_counted_once(deliver: Deliver, now: datetime) -> None:
    lines = distinct(LIMIT + 10)
    deliver(report(*lines, now=now))
    deliver(report(*lines, now=now))
    assert (counted().count, distinct_faults(counted())) == (10, 10)


def test_repeated_faults_stay_as_many_distinct_ones(deliver: Deliver, now: datetime) -> None:
    deliver(report(*distinct(LIMIT + 10), now=now))
    fresh = [Fault(kind="check", code=f"c{number}", source="agent") for number in range(LIMIT, LIMIT + 20)]
    deliver(report(*fresh, now=now))
    assert (counted().count, distinct_faults(counted())) == (30, 20)


def test_distinct_faults_beyond_the_bound_are_counted_together(deliver: Deliver, now: datetime) -> None:
    deliver(report(*distinct(1_000), now=now))
    deliver(report(*distinct(1_000, start=1_000), now=now))
    deliver(report(*distinct(10, start=2_000), now=now))
    assert counted().because["code"] == "faults_overflow_more"
    assert distinct_faults(counted()) == overflow.MAX_DISTINCT_FAULTS
    assert len(counted().fault_digests) == overflow.MAX_DISTINCT_FAULTS + 1
    assert counted().count == 2_010 - LIMIT


def test_closed_incidents_make_room(deliver: Deliver, now: datetime) -> None:
    deliver(report(*distinct(LIMIT + 10), now=now))
    later = now + timedelta(minutes=1)
    keys = list(Incident.objects.values_list("pk", flat=True))
    services.close(keys, because=reasons.of("node_gone"), actor="user:ada", now=later)
    assert not Incident.objects.filter(state="open").exists()
    deliver(report(*distinct(2, start=LIMIT + 20), now=later), at=later)
    assert (own(), Incident.objects.filter(kind=OVERFLOW, state="open").count()) == (2, 0)


def test_a_new_overflow_incident_starts_its_count(deliver: Deliver, now: datetime) -> None:
    deliver(report(*distinct(LIMIT + 10), now=now))
    services.close([counted().pk], because=reasons.of("node_gone"), actor="user:ada", now=now)
    deliver(report(*distinct(3, start=500), now=now))
    assert (counted().count, distinct_faults(counted())) == (3, 3)


def test_faults_of_the_portal_itself_are_not_displaced(deliver: Deliver, now: datetime) -> None:
    deliver(report(*distinct(LIMIT + 10, kind="agent"), now=now))
    node = counted().node
    assert node is not None
    silent = services.PortalFault(
        kind="agent", code="silent", because=reasons.of("agent_silent", since=reasons.moment(now)), source="portal"
    )
    assert record_faults.keep_fault(node, silent, boot_id="boot-1", now=now)
    assert Incident.objects.filter(kind="agent", code="silent", state="open").exists()


def test_the_statements_of_a_report_are_bounded(deliver: Deliver, now: datetime) -> None:
    with CaptureQueriesContext(connection) as first:
        deliver(report(*distinct(1_000), now=now))
    assert len(first) <= STATEMENTS_OF_A_REPORT  # incidents are opened together
    with CaptureQueriesContext(connection) as others:
        deliver(report(*distinct(1_000, start=5_000), now=now))
    assert len(others) <= STATEMENTS_OF_A_REPORT
    with CaptureQueriesContext(connection) as few:
        deliver(report(*distinct(2, start=9_000), now=now))
    assert abs(len(others) - len(few)) <= 2


@pytest.mark.parametrize(
    "harmless",
    [xids(LIMIT, code=13), xids(LIMIT, code=79, drill=True), xids(LIMIT, code=42)],
    ids=["user", "drill", "info"],
)
def test_harmless_faults_take_no_places_of_real_ones(deliver: Deliver, now: datetime, harmless: list[Fault]) -> None:
    deliver(report(*harmless, now=now))
    assert own() == LIMIT
    deliver(report(*xids(1, code=119, start=500), now=now))
    fatal = Incident.objects.get(kind="xid", code="119", state="open")
    assert (fatal.is_user_fault, fatal.drill, own()) == (False, False, LIMIT + 1)
    assert not Incident.objects.filter(kind=OVERFLOW).exists()


def test_user_faults_and_drills_share_their_places(deliver: Deliver, now: datetime) -> None:
    deliver(report(*xids(LIMIT, code=13), now=now))
    deliver(report(*xids(3, code=79, start=500, drill=True), now=now))
    assert (own(), counted().count) == (LIMIT, 3)


def test_real_faults_have_as_many_places(deliver: Deliver, now: datetime) -> None:
    deliver(report(*xids(LIMIT, code=79), now=now))
    deliver(report(*xids(3, code=79, start=500), now=now))
    assert (own(), counted().count) == (LIMIT, 3)


def test_a_real_fault_goes_before_drills_of_the_same_report(deliver: Deliver, now: datetime) -> None:
    drills = xids(LIMIT, code=79, drill=True)
    deliver(report(*drills, *xids(1, code=119, start=500), now=now))
    assert Incident.objects.filter(kind="xid", code="119", state="open").exists()
    assert (own(), counted().count) == (LIMIT, 1)


def test_open_incidents_are_updated_in_a_bounded_number(deliver: Deliver, now: datetime) -> None:
    kinds = {"check": 0, "other": 1_000, "agent": 2_000}
    for kind, start in kinds.items():
        deliver(report(*distinct(LIMIT, kind=kind, start=start), now=now))
    assert own() == len(kinds) * LIMIT
    repeated = [fault for kind, start in kinds.items() for fault in distinct(LIMIT, kind=kind, start=start)]
    with CaptureQueriesContext(connection) as captured:
        answer = deliver(report(*repeated, now=now, boot_id="boot-2"))
    most = overflow.MAX_FAULTS_PER_REPORT * STATEMENTS_PER_UPDATED_INCIDENT + STATEMENTS_OF_A_REPORT
    assert len(captured) <= most
    assert answer.accepted == len(repeated)
    assert counted().count == len(repeated) - overflow.MAX_FAULTS_PER_REPORT
    assert Incident.objects.aggregate(total=Sum("count"))["total"] == 2 * len(repeated)


def test_the_worst_of_open_faults_are_updated(deliver: Deliver, now: datetime) -> None:
    deliver(report(*xids(1, code=79), now=now))
    deliver(report(*distinct(LIMIT), now=now))
    again = [*distinct(LIMIT), *xids(1, code=79)]
    deliver(report(*again, now=now, boot_id="boot-2"))
    assert Incident.objects.get(kind="xid", code="79").count == 2
    assert counted().count == 1


def test_a_parked_node_has_few_places(deliver: Deliver, now: datetime) -> None:
    deliver(report(*distinct(LIMIT), node="parked", now=now))
    assert own() == PARKED_LIMIT
    assert counted().count == LIMIT - PARKED_LIMIT
    assert dict(reasons.from_json(counted().because).params)["limit"] == PARKED_LIMIT


def test_an_incident_that_another_caller_opened_meanwhile_is_not_opened_twice(deliver: Deliver, now: datetime) -> None:
    faults = distinct(2)
    deliver(report(faults[0], now=now))
    node = Incident.objects.get().node
    assert node is not None
    groups = [group_of(identity_of(fault), [fault], {}, boot_id="boot-1") for fault in faults]
    assert new_incidents.open_together(node, groups, boot_id="boot-1", now=now) == set()
    opened = [new_incidents.open_one(node, group, {}, boot_id="boot-1", now=now) for group in groups]
    assert [is_new for _, is_new in opened] == [False, True]
    assert Incident.objects.count() == 2
    assert Occurrence.objects.count() == 2
