"""A line that a user's program writes proves no fault of its node."""

from datetime import UTC, datetime

from kcover.sources import log_lines, loki

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def test_a_line_of_a_pod_is_a_fault_of_a_program() -> None:
    stream = {"k8s_namespace_name": "default", "k8s_node_name": "gpu-1"}
    value = [str(log_lines.nanoseconds(NOW)), "invalid device ordinal"]
    body = {"data": {"resultType": "streams", "result": [{"stream": stream, "values": [value]}]}}
    [seen] = loki.read(body, loki.queries({})[1], now=NOW).reading.observations
    assert seen.weight == "program"
