"""Figures of GPUs over time: the ring, who sees it, and how many statements it costs."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover.nodes import gpu_figures
from kcover_portal.fleet.models import CheckResult, Cluster, GpuSample, Node
from kcover_portal.fleet.services import gpu_samples
from kcover_portal.shared_reads import gpu_figures as views
from tests.portal.api.conftest import add_node, caller, person, problem

pytestmark = pytest.mark.django_db
QUARTER = gpu_figures.QUARTER
START = datetime(2026, 11, 27, 10, 15, tzinfo=UTC)
SOON = START + QUARTER + timedelta(seconds=40)  # when the sweep looks at the quarter that began at START


@pytest.fixture
def node() -> Node:
    return add_node(Cluster.objects.create(name="east", created_at=START), "gpu-1", START)


def report(node: Node, name: str, value: float | None, at: datetime, device: str = "") -> None:
    fields = {"status": "pass", "value": value, "seen_at": at, "changed_at": START}
    CheckResult.objects.update_or_create(node=node, name=name, device=device or f"GPU-{node.name}", defaults=fields)


def samples(node: Node) -> dict[datetime, object]:
    return dict(GpuSample.objects.filter(node=node).values_list("at", "figures"))


def test_a_quarter_samples_the_results_of_its_time_and_repeating_changes_nothing(node: Node):
    report(node, "ecc", 2, START)
    report(node, "temperature", 41, START + QUARTER - timedelta(microseconds=1))
    report(node, "remapped", 1, START + QUARTER)  # belongs to the next quarter
    report(node, "nvlink", 18, START - timedelta(microseconds=1))  # and this to the one before
    report(node, "clocks", 3, START)  # no figure
    report(node, "retired_pages", None, START)
    report(node, "ecc", 9, START, device="GPU-of-another-node")
    report(node, "pcie_replays", 9, START, device="not-a-gpu")
    for _ in range(2):
        gpu_samples.take(now=SOON)
        assert samples(node) == {START: {"GPU-gpu-1": {"ecc": 2, "temperature": 41}}}
    gpu_samples.take(now=SOON + QUARTER)
    assert samples(node)[START + QUARTER] == {"GPU-gpu-1": {"remapped": 1}}


def test_a_row_is_used_again_after_three_days_so_a_node_never_has_more_than_the_ring(node: Node):
    report(node, "ecc", 1, START)
    gpu_samples.take(now=SOON)
    [row] = GpuSample.objects.all()
    report(node, "ecc", 5, START + gpu_figures.KEPT)
    gpu_samples.take(now=SOON + gpu_figures.KEPT)
    [again] = GpuSample.objects.all()
    assert (again.pk, again.at, again.figures) == (row.pk, START + gpu_figures.KEPT, {"GPU-gpu-1": {"ecc": 5}})
    assert len({gpu_figures.slot(START + number * QUARTER) for number in range(1000)}) == gpu_figures.SLOTS == 288


def test_the_statements_do_not_grow_with_the_nodes(node: Node, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu_samples, "NODES_A_STATEMENT", 10**9)  # whatever keys the tests before have used up
    for number in range(2, 5):
        other = add_node(node.cluster, f"gpu-{number}", START)
        report(other, "ecc", number, START)
        with CaptureQueriesContext(connection) as asked:
            gpu_samples.take(now=SOON)
        assert sum("fleet_gpusample" in one["sql"] for one in asked) == 1
        assert samples(other)[START] == {f"GPU-gpu-{number}": {"ecc": number}}
        with CaptureQueriesContext(connection) as asked:
            views.of(other, now=SOON)
        assert len(asked) == 2


def test_figures_over_rest_and_on_the_page(node: Node):
    report(node, "ecc", 0, START)
    gpu_samples.take(now=SOON)
    report(node, "temperature", 17.5, START + 4 * QUARTER)
    gpu_samples.take(now=SOON + 4 * QUARTER)
    now = START + 6 * QUARTER
    found = views.of(node, now=now)
    assert (found.until, found.since) == (now, now - gpu_figures.KEPT)
    assert [(one.name, one.unit, [list(line.values) for line in one.lines]) for one in found.figures] == [
        ("temperature", "C to slowdown", [[None, 17.5]]),
        ("ecc", "errors", [[0.0, None]]),
    ]
    assert views.of(node, now=now + gpu_figures.KEPT).figures == []

    east, path = node.cluster, "nodes/east/gpu-1/figures"
    other = Cluster.objects.create(name="west", created_at=START)
    GpuSample.objects.all().delete()
    real = gpu_figures.quarter_before(datetime.now(UTC))
    GpuSample.objects.create(
        node=node, slot=gpu_figures.slot(real), at=real, figures={"GPU-gpu-1": {"remapped": 2, "ecc": 0}}
    )
    earlier = real - QUARTER
    GpuSample.objects.create(
        node=node, slot=gpu_figures.slot(earlier), at=earlier, figures={"GPU-gpu-1": {"remapped": 0}}
    )
    body = caller("viewer", START, cluster=east).get(path).json()
    assert [(one["name"], one["unit"], one["gpus"]) for one in body["figures"]][-1] == (
        *("remapped", "rows"),
        [{"gpu": "GPU-gpu-1", "index": 0, "values": [0.0, 2.0]}],
    )
    assert problem(caller("viewer", START, cluster=other).get(path), 404)
    assert problem(caller("viewer", START).get(f"{path}?days=9"), 400)
    page = person("vera", "viewer", START, cluster=east).client.get("/nodes/east/gpu-1/figures/")
    [chart] = page.context["history"].charts
    assert (chart.lines, [at for at, _values in chart.rows]) == ([("GPU 0", [0, 2])], [real, earlier])
    assert [value for _title, value in page.context["history"].unchanged] == [0]
    assert person("will", "viewer", START, cluster=other).client.get("/nodes/east/gpu-1/figures/").status_code == 404
