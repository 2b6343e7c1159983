"""Autopilot's gauge from the latest check results of every node, for existing dashboards and alerts.

Three queries and one line a result, written by hand: at 10,000 nodes the classes of the client library would cost more
than the queries. Beyond MAX_RESULTS results the failures are shown, and how many were left out.
"""

from kcover import autopilot
from kcover_portal.checks import queries as checks
from kcover_portal.fleet import queries as fleet

MAX_RESULTS = 100_000
BY_AGENTS = tuple(check for check in autopilot.METRIC_CHECKS if check not in autopilot.PORTAL_CHECKS)
NAME = "autopilot_health_checks"
LEFT_OUT = "kcover_autopilot_results_left_out"


def exposition(*, most: int = MAX_RESULTS) -> str:
    """The gauge as text.

    ``cpumodel`` is empty, because only the node's agent knows it. ``cluster`` is added, because node names are unique
    only within a cluster.
    """
    rows = [*fleet.latest_results(BY_AGENTS, limit=most + 1), *checks.storage_results(limit=most + 1)]
    rows.sort(key=lambda row: row[3] != "fail")
    lines = [f"# HELP {NAME} The latest result of each check", f"# TYPE {NAME} gauge"]
    for cluster, node, check, status, value, device, model in rows[:most]:
        shown = autopilot.metric_value(check, status, value)
        if shown is not None:
            labels = (
                f'health="{autopilot.CHECKS[check].metric}",node="{_quoted(node)}",cpumodel="",'
                f'gpumodel="{_quoted(model)}",deviceid="{_quoted(device)}",cluster="{_quoted(cluster)}"'
            )
            lines.append(f"{NAME}{{{labels}}} {shown:g}")
    lines += [
        f"# HELP {LEFT_OUT} 1 where there are more results than are shown here",
        f"# TYPE {LEFT_OUT} gauge",
        f"{LEFT_OUT} {int(len(rows) > most)}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
