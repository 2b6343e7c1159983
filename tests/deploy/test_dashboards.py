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
