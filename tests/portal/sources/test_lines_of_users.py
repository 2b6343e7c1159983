"""A line that a user's program writes proves no fault of its node."""

from datetime import UTC, datetime

import pytest

from kcover.faults import driver_line
from kcover.sources import log_lines, loki

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def test_a_line_of_a_pod_is_a_fault_of_a_program() -> None:
    stream = {"k8s_namespace_name": "default", "k8s_node_name": "gpu-1"}
    value = [str(log_lines.nanoseconds(NOW)), "invalid device ordinal"]
    body = {"data": {"resultType": "streams", "result": [{"stream": stream, "values": [value]}]}}
    [seen] = loki.read(body, loki.queries({})[1], now=NOW).batch.observations
    assert seen.weight == "program"


@pytest.mark.parametrize(
    ("before", "codes"),
    [
        ("", [79]),
        ("Nov 21 08:00:00 gpu-1 kernel: ", [79]),
        ("Nov 21 08:00:00 gpu-1 alice: ", []),
        ("Nov 21 08:00:00 gpu-1 0x: ", []),
        ("what ", []),
        ('{"log":"', [79]),
    ],
)
def test_a_line_that_names_a_program_is_not_the_kernels(before: str, codes: list[int]) -> None:
    value = [str(log_lines.nanoseconds(NOW)), f"{before}NVRM: Xid (PCI:0000:4e:00): 79, x"]
    body = {"data": {"resultType": "streams", "result": [{"stream": {"node": "gpu-1"}, "values": [value]}]}}
    assert [one.code for one in loki.read(body, loki.queries({})[0], now=NOW).batch.observations] == codes


def test_a_line_in_a_thousand_wraps_costs_only_itself() -> None:
    """It raised RecursionError, so that no line of the source was read for a day."""
    lines = (600 * "1700000000.1 stdout F " + "NVRM: Xid", "NVRM: Xid (PCI:0000:4e:00): 79, x")
    values = [[str(log_lines.nanoseconds(NOW)), line] for line in lines]
    body = {"data": {"resultType": "streams", "result": [{"stream": {"node": "gpu-1"}, "values": values}]}}
    assert [one.code for one in loki.read(body, loki.queries({})[0], now=NOW).batch.observations] == [79]


@pytest.mark.parametrize(
    ("namespace", "stream", "codes"),
    [
        ("dmesg-logging", None, [79]),
        ("kube-system", None, [79]),
        ("", None, [79]),
        ("ml-user", None, []),
        ("default", None, []),
        ("ml-user", '{k8s_daemonset_name="dmesg", k8s_namespace_name="ml-user"}', [79]),
    ],
)
def test_a_users_daemonset_called_dmesg_is_not_the_kernels(
    namespace: str, stream: str | None, codes: list[int]
) -> None:
    """It could have had any node rebooted on which its pods run, again and again."""
    labels = {"k8s_daemonset_name": "dmesg", "k8s_namespace_name": namespace, "k8s_node_name": "gpu-1"}
    values = [[nanosecond(), "NVRM: Xid (PCI:0000:4e:00): 79, x"]]
    body = {"data": {"resultType": "streams", "result": [{"stream": labels, "values": values}]}}
    kernel = loki.queries({} if stream is None else {"stream": stream})[0]
    batch = loki.read(body, kernel, now=NOW).batch
    assert [one.code for one in batch.observations] == codes
    assert [one.reason.code for one in batch.rejected] == ([] if codes else ["loki_namespace"])


def test_a_users_daemonset_called_dmesg_explains_no_kernel_fault_away() -> None:
    """It could have said that the driver cannot run the GPU, whose failed start is then no fault."""
    lines = {
        "ml-user": "NVRM: The NVIDIA GPU 0000:4e:00.0 is not supported by this driver",
        "dmesg-logging": "NVRM: GPU 0000:4e:00.0: RmInitAdapter failed! (0x22:0x56:762)",
    }
    streams = [
        {"stream": {"k8s_namespace_name": namespace, "k8s_node_name": "gpu-1"}, "values": [[nanosecond(), line]]}
        for namespace, line in lines.items()
    ]
    body = {"data": {"resultType": "streams", "result": streams}}
    seen = loki.read(body, loki.queries({})[0], now=NOW).batch.observations
    assert [one.code for one in seen] == [driver_line.INIT_FAILED]


def nanosecond() -> str:
    return str(log_lines.nanoseconds(NOW))
