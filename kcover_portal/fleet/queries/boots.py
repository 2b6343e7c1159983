"""The boots of a node, as the watch and its agent have shown them."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from kcover.decisions.boots import Boot
from kcover_portal.fleet.models import Agent, Node


@dataclass(frozen=True, slots=True)
class NodeBoots:
    """The boots, the latest first. ``clock_ahead``: of the node's clock before the portal's, by its agent's report.

    Less than nothing: it is behind, or the report was long under way. So much later a fault may have happened.
    """

    boots: tuple[Boot, ...]
    clock_ahead: timedelta = timedelta()


def boots_of(node: Node) -> NodeBoots:
    """The boots of a node; no query if it was read with its agent.

    A boot began no later than the watch or the agent first showed it. The first boot that the portal knows began before
    anybody looked. An agent may be ahead of the watch: its boot is then the latest.
    """
    agent: Agent | None = getattr(node, "agent", None)
    boot_id, seen_at, skew = (agent.boot_id, agent.boot_seen_at, agent.skew) if agent else ("", node.created_at, 0.0)
    spans = {boot: [datetime.fromisoformat(at) for at in text.split()] for boot, text in node.boot_times.items()}
    times = {boot: span[0] for boot, span in spans.items()}
    after = {boot: span[1] for boot, span in spans.items() if len(span) > 1}
    shown = [boot for boot in (node.boot_id, *node.past_boots) if boot]
    if boot_id and node.past_boots and boot_id == node.boot_id:
        times[boot_id] = min(times.get(boot_id, seen_at), seen_at)
    elif boot_id and shown and boot_id not in shown:
        shown, times[boot_id] = [boot_id, *shown], seen_at
    return NodeBoots(tuple(Boot(boot, times.get(boot), after.get(boot)) for boot in shown), timedelta(seconds=skew))
