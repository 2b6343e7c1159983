"""The Grafana dashboards: each query is valid PromQL about metrics that the portal has."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from kcover_portal.operate import metrics
from tests.deploy.chart import EVERYTHING, of_kind, render
from tests.portal.sources.monitoring import needs
from tools import chart

FILES: Final = dict(chart.dashboards())
DASHBOARDS: Final[dict[str, dict[str, Any]]] = {path.stem: json.loads(text) for path, text in FILES.items()}
QUERIES: Final = [
    query["expr"] for dashboard in DASHBOARDS.values() for panel in dashboard["panels"] for query in panel["targets"]
]
METRIC: Final = re.compile(r"\b(?:kcover|autopilot)_\w+")


def test_the_files_are_those_of_the_source() -> None:
    folder = chart.CHART / "files" / "dashboards"
    assert {path: path.read_text(encoding="utf-8") for path in folder.iterdir()} == FILES


@needs("promtool")
def test_prometheus_reads_each_query(tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}), encoding="utf-8")
    ended = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.django_db
def test_each_query_is_about_metrics_of_the_portal(settings: Any) -> None:
    settings.REDIS_URL = ""
    families = set(re.findall(r"^# TYPE (\w+)", metrics.render().decode(), re.MULTILINE))
    for query in QUERIES:
        used = {name.removesuffix("_sum").removesuffix("_count") for name in METRIC.findall(query)}
        assert used, query
        assert used <= families, query


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_titles_and_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARDS[name]["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert at["x"] + at["w"] <= chart.GRID_COLUMNS
        assert not taken & cells
        taken |= cells


def test_the_chart_installs_them_for_the_sidecar() -> None:
    found = {
        name: json.loads(text)
        for one in of_kind(render(EVERYTHING), "ConfigMap").values()
        if one["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
        for name, text in one["data"].items()
    }
    assert found == {f"{name}.json": dashboard for name, dashboard in DASHBOARDS.items()}


@needs("promtool")
def test_a_node_with_low_bandwidth_is_one_with_a_failed_check(tmp_path: Path) -> None:
    [panel] = [one for one in DASHBOARDS["kcover-autopilot"]["panels"] if one["title"] == "Nodes with a failed check"]
    query = panel["targets"][0]["expr"].replace("$cluster", ".*")
    series = {
        'autopilot_health_checks{health="pciebw",node="gpu-1",cluster="east"}': "3",
        'autopilot_health_checks{health="pciebw",node="gpu-2",cluster="east"}': "12",
        'autopilot_health_checks{health="dcgm",node="gpu-3",cluster="east"}': "1",
        'autopilot_health_checks{health="dcgm",node="gpu-4",cluster="east"}': "0",
    }
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": f"{value}x5"} for name, value in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": "3m", "exp_samples": [{"labels": "{}", "value": 2}]}],
    }
    path = tmp_path / "cases.yaml"
    path.write_text(json.dumps({"tests": [case]}), encoding="utf-8")
    ended = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.django_db
@pytest.mark.parametrize("prefix", ["kcover_ledger_", "kcover_audit_stream_"])
def test_the_page_explains_the_metrics_of_the_audit_log(settings: Any, prefix: str) -> None:
    settings.REDIS_URL = ""
    families = re.findall(rf"^# TYPE ({prefix}\w+)", metrics.render().decode(), re.MULTILINE)
    page = Path(chart.ROOT / "docs/operations/install/monitoring.md").read_text(encoding="utf-8")
    assert len(families) > 3
    assert [name for name in families if f"`{name}`" not in page] == []
