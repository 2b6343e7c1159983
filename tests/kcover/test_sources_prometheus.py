"""Which values of Prometheus are the numbers of Xids."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover.sources import prometheus
from kcover.sources.prometheus_samples import XID_METRIC

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
METRIC = XID_METRIC


def read(query: str, *series: tuple[dict[str, str], str], before: prometheus.Before, at: datetime = NOW) -> Any:
    rows = [{"metric": {"Hostname": "gpu-1", **labels}, "value": [at.timestamp(), value]} for labels, value in series]
    body = {"status": "success", "data": {"resultType": "vector", "result": rows}}
    return prometheus.read(body, query=query, before=before, now=at)


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        (METRIC, "xid"),
        (f"{METRIC} > 0", "xid"),
        (f"max by (Hostname, gpu) ({METRIC})", "xid"),
        (f"last_over_time({METRIC}[5m])", "xid"),
        (f"changes({METRIC}[5m]) > 0", "alert"),
        (f"count by (Hostname) ({METRIC}) > 1", "alert"),
        (f"increase( {METRIC}{{gpu='1'}}[5m])", "alert"),
        (f"{METRIC} > bool 0", "alert"),
        (f'label_replace({METRIC}, "node", "$1", "Hostname", "(.*)")', "xid"),
        (f"{METRIC} * on (pod) group_left (node) kube_pod_info", "xid"),
        (f"max by (gpu) ({METRIC}) and on (gpu) up == 1", "xid"),
        (f"count(max by (Hostname, gpu) ({METRIC}) > 0) by (Hostname)", "alert"),
        (f"group({METRIC})", "alert"),
        (f"changes(max by (gpu) ({METRIC})[5m:]) > 0", "alert"),
        (f"{METRIC} - {METRIC} offset 5m", "alert"),
        (f'ALERTS{{alertname="{METRIC}"}}', "alert"),
    ],
)
def test_the_value_of_a_function_is_no_xid(query: str, kind: str) -> None:
    found = read(query, ({"gpu": "2", "err_code": "43"}, "79"), before=prometheus.Before()).batch
    assert [(one.kind, one.alias or one.code) for one in found.observations] == [(kind, 79 if kind == "xid" else 43)]


def test_a_second_xid_of_one_gpu_is_another_fault() -> None:
    query = "DCGM_EXP_XID_ERRORS_COUNT > 0"
    series = {"__name__": "DCGM_EXP_XID_ERRORS_COUNT", "gpu": "2"}
    first = read(query, ({**series, "xid": "43"}, "1"), before=prometheus.Before())
    both = (({**series, "xid": "43"}, "1"), ({**series, "xid": "79"}, "1"))
    later = NOW + timedelta(minutes=1)
    second = read(query, *both, before=first.after, at=later)
    assert [(one.alias, one.weight) for one in first.batch.observations] == [(43, "program")]
    assert [(one.alias, one.weight) for one in second.batch.observations] == [(79, "node")]
    assert read(query, *both, before=second.after, at=later).batch.observations == ()


def test_a_series_that_an_older_portal_reported_is_not_reported_again() -> None:
    query = "DCGM_EXP_XID_ERRORS_COUNT > 0"
    series = {"__name__": "DCGM_EXP_XID_ERRORS_COUNT", "gpu": "2", "xid": "43"}
    place = "gpu-1\tDCGM_EXP_XID_ERRORS_COUNT\tgpu 2"
    assert read(query, (series, "1"), before=prometheus.Before(at=NOW, shown={place: "1"})).batch.observations == ()


def test_a_blank_value_of_dcgm_is_rejected() -> None:
    found = read(METRIC, ({"gpu": "2"}, "2147483632"), ({"gpu": "3"}, "79"), before=prometheus.Before()).batch
    assert [one.code for one in found.observations] == [79]
    assert [one.reason.code for one in found.rejected] == ["prometheus_xid"]


@pytest.mark.parametrize(
    ("query", "selects"),
    [
        (METRIC, False),
        (f"{METRIC}{{}} > 0", False),
        (f'{{__name__="{METRIC}"}}', False),
        (f'{METRIC}{{job=~".*"}}', False),
        (f'{METRIC}{{pod!=""}}', False),
        (f'{METRIC} # {{job="a"}}', False),
        (f'{{"{METRIC}", "job"="a"}}', True),
        (f"max by (Hostname, gpu) ({METRIC})", False),
        (f'{METRIC}{{job="nvidia-dcgm-exporter"}}', True),
        (f"max by (gpu) ({METRIC} {{ namespace =~ 'gpu-operator' }})", True),
        (f'label_replace({METRIC}, "node", "$1", "Hostname", "(.*)")', False),
    ],
)
def test_a_query_without_a_selector_believes_every_series(query: str, *, selects: bool) -> None:
    assert prometheus.has_selector(query) is selects


def test_a_job_that_the_default_query_leaves_out_is_named() -> None:
    rows = [{"metric": metric, "value": [NOW.timestamp(), "3"]} for metric in ({"job": "kubernetes-pods"}, {})]
    found = prometheus.other_jobs({"data": {"resultType": "vector", "result": rows}})
    assert [one.reason.code for one in found] == ["prometheus_job"] * 2
    assert [dict(one.reason.params)["job"] for one in found] == ["kubernetes-pods", "-"]
