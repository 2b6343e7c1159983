"""Figures of GPUs over time: the ring, who sees it, and how many statements it costs."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover.nodes import gpu_figures
from kcover_portal.api.agent import report_decoder
from kcover_portal.fleet.models import Cluster, GpuSample, Node
from kcover_portal.fleet.services import gpu_samples
from kcover_portal.incidents import services as incidents
from kcover_portal.shared_reads import gpu_figures as views
from tests.portal.api.conftest import add_node, caller, person, problem
from tests.portal.api.door import check, report as report_body

pytestmark = pytest.mark.django_db
QUARTER = gpu_figures.QUARTER
START = datetime(2026, 11, 27, 10, 15, tzinfo=UTC)
SOON = START + timedelta(minutes=14, seconds=59)


@pytest.fixture
def node() -> Node:
    return add_node(Cluster.objects.create(name="east", created_at=START), "gpu-1", START)


def report(node: Node, values: dict[str, float], at: datetime) -> None:
    gpu_samples.keep({node.pk: {f"GPU-{node.name}": values}}, now=at)


def send(cluster: Cluster, body: dict[str, Any], at: datetime) -> None:
    incidents.ingest([report_decoder.read(cluster, json.dumps(body).encode(), now=at)], now=at)


def samples(node: Node) -> dict[datetime, object]:
    return dict(GpuSample.objects.filter(node=node).values_list("at", "figures"))


def test_reports_of_agents_end_in_the_ring(node: Node):
    figures = {"GPU-gpu-1": {"power": 412.5, "ecc": 0, "of_a_newer_agent": 7}, "GPU-b": {"of_a_newer_agent": 7}}
    body = report_body(node="gpu-1", figures=figures)
    for _ in range(2):
        send(node.cluster, body, SOON)
        assert samples(node) == {START: {"GPU-gpu-1": {"power": 412.5, "ecc": 0}}}
    send(node.cluster, report_body(node="gpu-1", figures={"GPU-gpu-1": {"power": 1}}), SOON)
    assert samples(node) == {START: {"GPU-gpu-1": {"power": 412.5, "ecc": 0}}}, "the first one of a quarter counts"
    send(node.cluster, report_body(node="gpu-1"), SOON + QUARTER)
    assert list(samples(node)) == [START]


def test_a_repeated_report_changes_nothing(node: Node):
    first = report_body(node="gpu-1", figures={"GPU-gpu-1": {"power": 1}}, checks=[check()])
    send(node.cluster, first, SOON)
    send(node.cluster, report_body(node="gpu-1", figures={"GPU-gpu-1": {"power": 2}}), SOON)
    send(node.cluster, first, SOON + QUARTER)
    assert samples(node) == {START: {"GPU-gpu-1": {"power": 1}}}


def test_a_row_is_used_again_after_three_days_so_a_node_never_has_more_than_the_ring(node: Node):
    report(node, {"ecc": 1}, SOON)
    [row] = GpuSample.objects.all()
    report(node, {"ecc": 5}, SOON + gpu_figures.KEPT)
    [again] = GpuSample.objects.all()
    assert (again.pk, again.at, again.figures) == (row.pk, START + gpu_figures.KEPT, {"GPU-gpu-1": {"ecc": 5}})
    assert len({gpu_figures.slot(START + number * QUARTER) for number in range(1000)}) == gpu_figures.SLOTS == 288


def test_the_statements_do_not_grow_with_the_nodes(node: Node):
    others = [add_node(node.cluster, f"gpu-{number}", START) for number in range(2, 5)]
    with CaptureQueriesContext(connection) as asked:
        gpu_samples.keep({other.pk: {f"GPU-{other.name}": {"ecc": 3}} for other in others}, now=SOON)
    assert len(asked) == 1
    for other in others:
        assert samples(other) == {START: {f"GPU-{other.name}": {"ecc": 3}}}
        with CaptureQueriesContext(connection) as asked:
            views.of(other, now=SOON)
        assert len(asked) == 2
    with CaptureQueriesContext(connection) as asked:
        gpu_samples.keep({}, now=SOON)
    assert len(asked) == 0


def test_figures_over_rest_and_on_the_page(node: Node):
    report(node, {"ecc": 0}, SOON)
    told = {f"GPU-{node.name}": {"temperature": 17.5}, "GPU-of-another-node": {"power": 300}}
    gpu_samples.keep({node.pk: told}, now=SOON + 4 * QUARTER)
    now = START + 6 * QUARTER
    found = views.of(node, now=now)
    assert (found.until, found.since) == (now + QUARTER, now + QUARTER - gpu_figures.KEPT)
    assert [(one.name, one.unit, [list(line.values) for line in one.lines]) for one in found.figures] == [
        ("temperature", "C to slowdown", [[None, 17.5]]),
        ("ecc", "errors", [[0.0, None]]),
    ]
    assert views.of(node, now=now + gpu_figures.KEPT).figures == []

    east, path = node.cluster, "nodes/east/gpu-1/figures"
    other = Cluster.objects.create(name="west", created_at=START)
    GpuSample.objects.all().delete()
    real = gpu_figures.quarter_of(datetime.now(UTC))
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
