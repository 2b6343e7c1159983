"""The alerting rules about the portal, run by Prometheus' own tool.

Each rule has series on which it fires at a given minute. On the series of a healthy portal no rule fires.
"""

import json
import re
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kcover.checks import autopilot
from kcover_portal.operate import metrics
from kcover_portal.policies.services import shipped
from tests.deploy.chart import EVERYTHING, LEAST, of_kind, render
from tests.portal.sources.monitoring import needs
from tools import chart

RULES: Final = chart.CHART / "files" / "alerts.yaml"
AUTOPILOT: Final = chart.CHART / "files" / "autopilot-alerts.yaml"
RUNBOOKS: Final = Path(__file__).parents[2] / "docs" / "runbooks"
MINUTES: Final = 60
HEALTHY: Final = {
    'kcover_well{check="database"}': "1",
    'kcover_well{check="broker"}': "1",
    'kcover_well{check="watch"}': "1",
    'kcover_well{check="watch east"}': "1",
    "kcover_sweep_age_seconds": "0.4",
    'kcover_needs_person{cluster="east",kind="approval"}': "0",
    'kcover_agents_silent{cluster="east"}': "0",
    'kcover_ingest_reports_total{end="kept"}': "0+6000",
    'kcover_ingest_reports_total{end="failed"}': "3",
    'kcover_ingest_reports_total{end="busy"}': "0",
    'kcover_ingest_reports_total{end="limited"}': "0+5",
    "kcover_notify_waiting_seconds": "40",
    'kcover_source_well{source="loki",kind="loki",cluster="east"}': "1",
    "kcover_ledger_diverged": "0",
    'kcover_ledger_heads_failing{place="file"}': "0",
    'kcover_audit_stream_lag_seconds{sink="siem"}': "30",
}
# Alert: the series that differ from a healthy portal, the last minute of silence, and a minute at which it fires.
TROUBLE: Final[dict[str, tuple[dict[str, str], int, int]]] = {
    "KcoverMetricsMissing": (dict.fromkeys(HEALTHY, "_"), 4, 6),
    "KcoverSweepStalled": ({"kcover_sweep_age_seconds": "0+60"}, 2, 4),
    "KcoverRedisFailing": ({'kcover_well{check="broker"}': "0"}, 0, 2),
    "KcoverWatchLost": ({'kcover_well{check="watch east"}': "0"}, 4, 6),
    "KcoverNeedsPerson": ({'kcover_needs_person{cluster="east",kind="approval"}': "2"}, 29, 31),
    "KcoverAgentsSilent": ({'kcover_agents_silent{cluster="east"}': "3"}, 14, 16),
    "KcoverReportsRefused": ({'kcover_ingest_reports_total{end="busy"}': "0+1"}, 9, 13),
    "KcoverMessagesUndelivered": ({"kcover_notify_waiting_seconds": "0+60"}, 14, 17),
    "KcoverSourceFailing": ({'kcover_source_well{source="loki",kind="loki",cluster="east"}': "0"}, 9, 11),
    "KcoverLedgerDiverged": ({"kcover_ledger_diverged": "0 1"}, 0, 1),
    "KcoverLedgerHeadsLate": ({'kcover_ledger_heads_failing{place="file"}': "1"}, 14, 16),
    "KcoverAuditStreamLate": ({'kcover_audit_stream_lag_seconds{sink="siem"}': "0+60"}, 19, 22),
}


def failing(health: str, value: str = "1", device: str = "GPU-1") -> dict[str, str]:
    """A result of a check of a node as the portal's metric tells it."""
    return {f'autopilot_health_checks{{health="{health}",node="gpu-1",deviceid="{device}",cluster="east"}}': value}


# As above. 12 GB/s are enough, and 4 are not.
TROUBLE_OF_NODES: Final[dict[str, tuple[dict[str, str], int, int]]] = {
    "LowPCIeBandwidth": (failing("pciebw", "3.9"), 0, 2),
    "DCGMLevel1Errors": (failing("dcgm", device=""), 0, 2),
    "DCGMLevel3Errors": (
        {'kube_node_labels{node="gpu-1",label_autopilot_ibm_com_dcgm_level_3="ERR_2026-11-28_08.15.00UTC"}': "1"},
        0,
        2,
    ),
    "GPUPowerSlowdownEnabled": (failing("power-slowdown"), 0, 2),
    "RemappedRowsActive": (failing("remapped"), 0, 2),
    "PingFailures": (failing("ping", device="gpu-2"), 9, 11),
    "PVCAlert": (failing("pvc", device=""), 0, 2),
    "GPUNodeHealth": (failing("pciebw", "4"), 0, 2),
    "AutopilotPodsFailing": ({'kcover_agents_silent{cluster="east"}': "1"}, 4, 6),
}
HEALTHY_NODE: Final = failing("pciebw", "12.1") | {
    name: "0" for health in ("dcgm", "power-slowdown", "remapped", "ping", "pvc") for name in failing(health)
}


def rules(file: Path = RULES) -> list[dict[str, Any]]:
    groups = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def values(text: str) -> str:
    """A series of an hour in promtool's notation: `_` is no sample, `a+b` counts up, `a b` changes after a minute."""
    if " " in text:
        first, rest = text.split()
        return f"{first} {rest}x{MINUTES}"
    return f"{text}x{MINUTES}"


def case(differing: dict[str, str], alerts: list[dict[str, Any]]) -> dict[str, Any]:
    series = HEALTHY | HEALTHY_NODE | differing
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values(text)} for name, text in series.items()],
        "alert_rule_test": alerts,
    }


def run(folder: Path, cases: list[dict[str, Any]]) -> str:
    """promtool's complaints; empty if each case is as expected."""
    file = folder / "cases.yaml"
    file.write_text(
        json.dumps({"rule_files": [str(RULES), str(AUTOPILOT)], "evaluation_interval": "1m", "tests": cases})
    )
    ended = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr


def fires(differing: dict[str, str], name: str, minute: int, folder: Path) -> bool:
    """Whether the rule fires at this minute, for whatever labels."""
    output = run(folder, [case(differing, [{"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []}])])
    assert not output or "exp:[" in output.replace(" ", ""), output
    return bool(output)


@needs("promtool")
@pytest.mark.parametrize("name", TROUBLE | TROUBLE_OF_NODES)
def test_each_alert_fires_on_its_trouble_and_not_before(name: str, tmp_path: Path) -> None:
    differing, silent, firing = (TROUBLE | TROUBLE_OF_NODES)[name]
    assert not fires(differing, name, silent, tmp_path)
    assert fires(differing, name, firing, tmp_path)


@needs("promtool")
def test_a_healthy_portal_has_no_alert(tmp_path: Path) -> None:
    none = [
        {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []}
        for name in TROUBLE | TROUBLE_OF_NODES
        for minute in (1, 50)
    ]
    assert run(tmp_path, [case({}, none)]) == ""


@needs("promtool")
def test_silent_agents_do_not_alert_while_the_cluster_does_not_answer(tmp_path: Path) -> None:
    differing = {'kcover_agents_silent{cluster="east"}': "3", 'kcover_well{check="watch east"}': "0"}
    assert not fires(differing, "KcoverAgentsSilent", 50, tmp_path)
    assert fires(differing, "KcoverWatchLost", 50, tmp_path)


def test_each_rule_has_a_runbook_and_a_case() -> None:
    names = [rule["alert"] for rule in rules()]
    assert set(names) == set(TROUBLE)
    assert len(names) == len(TROUBLE)
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == {*names, "AutopilotCheckFailed"}
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_autopilots_alerts_have_its_names_and_labels() -> None:
    """The pack `autopilot` knows them by these names."""
    found = {rule["alert"]: rule for rule in rules(AUTOPILOT)}
    assert set(found) == set(TROUBLE_OF_NODES)
    pack = next(yaml.safe_load_all(shipped.pack_text("autopilot")))
    known = {name for rule in pack["spec"]["rules"] for name in rule["match"].get("codes", {}).get("alert", ())}
    assert set(found) <= known
    for rule in found.values():
        assert rule["labels"]["alert"] == "autopilot"
        assert (RUNBOOKS / Path(rule["annotations"]["runbook_url"]).name).exists()


def test_the_rules_select_checks_by_names_that_the_metric_has() -> None:
    names = {one.metric for one in autopilot.CHECKS.values()}
    selected = re.findall(r'health=~?"([^"]+)"', " ".join(rule["expr"] for rule in rules(AUTOPILOT)))
    assert {name for text in selected for name in text.split("|")} <= names


@pytest.mark.django_db
def test_the_rules_use_metrics_of_the_portal(settings: Any, now: datetime) -> None:
    settings.REDIS_URL = ""
    families = set(re.findall(r"^# TYPE (\w+)", metrics.render().decode(), re.MULTILINE))
    both = [*rules(), *rules(AUTOPILOT)]
    used = {name for rule in both for name in re.findall(r"\b(?:kcover|autopilot)_\w+", rule["expr"])}
    assert used
    assert used <= families


def test_the_chart_installs_the_rules_with_the_address_of_the_runbooks() -> None:
    assert set(of_kind(render(LEAST | {"prometheusRule": {"enabled": True}}), "PrometheusRule")) == {"kcover"}
    made = of_kind(render(EVERYTHING), "PrometheusRule")
    assert len(made.pop("kcover-autopilot")["spec"]["groups"][0]["rules"]) == len(TROUBLE_OF_NODES)
    (installed,) = made.values()
    shown = [rule for group in installed["spec"]["groups"] for rule in group["rules"]]
    assert [rule["expr"] for rule in shown] == [rule["expr"] for rule in rules()]
    for rule in shown:
        assert rule["annotations"]["runbook_url"] == f"https://docs.example.com/{rule['alert']}.md"
