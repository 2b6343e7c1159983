"""Autopilot's gauge from the latest check results of all nodes, for existing dashboards and alerts.

The text is built directly, because at 10,000 nodes the classes of the client library would cost more than the three
queries. With more than KCOVER_METRICS_RESULTS results, failures come first and a second gauge shows that results are
missing.
"""

from kcover.checks import autopilot
from kcover_portal.checks import queries as checks
from kcover_portal.fleet import queries as fleet

BY_AGENTS = tuple(check for check in autopilot.METRIC_CHECKS if check not in autopilot.PORTAL_CHECKS)
NAME = "autopilot_health_checks"
LEFT_OUT = "kcover_autopilot_results_left_out"


def exposition(*, most: int) -> str:
    """Returns the gauge in the Prometheus text format.

    ``cpumodel`` is empty, because only the node's agent knows it. ``cluster`` is added, because node names are unique
    only within a cluster.
    """
    rows = [*fleet.latest_results(BY_AGENTS, limit=most + 1), *checks.storage_results(limit=most + 1)]
    rows.sort(key=lambda row: row[3] != "fail")
    lines = [f"# HELP {NAME} The latest result of each check", f"# TYPE {NAME} gauge"]
    for cluster, node, check, status, value, device, model in rows[:most]:
        number = autopilot.metric_value(check, status, value)
        if number is not None:
            labels = (
                f'health="{autopilot.CHECKS[check].metric}",node="{_quoted(node)}",cpumodel="",'
                f'gpumodel="{_quoted(model)}",deviceid="{_quoted(device)}",cluster="{_quoted(cluster)}"'
            )
            lines.append(f"{NAME}{{{labels}}} {number:g}")
    lines += [
        f"# HELP {LEFT_OUT} 1 if some results are not exported because there are too many",
        f"# TYPE {LEFT_OUT} gauge",
        f"{LEFT_OUT} {int(len(rows) > most)}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
