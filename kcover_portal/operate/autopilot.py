"""Autopilot's gauge by the latest check results of every node, for dashboards and alerts that there are.

Three queries and one line a result, written by hand: at 10,000 nodes the classes of the client library would cost more
than the queries. Beyond MOST results the failures are shown, and how many were left out.
"""

from kcover import autopilot
from kcover_portal.fleet import queries as fleet

MOST = 100_000
BY_AGENTS = tuple(check for check in autopilot.METRICS if check not in autopilot.BY_THE_PORTAL)
NAME = "autopilot_health_checks"
LEFT_OUT = "kcover_autopilot_results_left_out"


def exposition(*, most: int = MOST) -> str:
    """The gauge as text. ``cpumodel`` is empty: only the node's own agent knows it. ``cluster`` is added, as two
    clusters may have a node of one name each."""
    rows = [*fleet.latest_results(BY_AGENTS, limit=most + 1), *fleet.storage_results(limit=most + 1)]
    rows.sort(key=lambda row: row[3] != "fail")
    lines = [f"# HELP {NAME} The latest result of each check", f"# TYPE {NAME} gauge"]
    for cluster, node, check, status, value, device, model in rows[:most]:
        shown = autopilot.metric_value(check, status, value)
        if shown is not None:
            labels = (
                f'health="{autopilot.NAMES[check].metric}",node="{_quoted(node)}",cpumodel="",'
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
