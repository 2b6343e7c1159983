"""Monitors of nodes in a walk: each states one condition, states it again, ends it, or falls silent for good (55)."""

import contextlib
import random
from collections import defaultdict
from datetime import timedelta
from typing import Any, Final

from kcover_portal.incidents.models import Occurrence
from kcover_portal.kube import port
from kcover_portal.sources import services
from kcover_portal.sources.models import Source
from tests.invariants.observed_cluster import must
from tests.invariants.walk_cluster import WalkCluster

KIND: Final = "GpuStuck"
CODE: Final = f"{KIND}=True/Stuck"
TABLE: Final = [{"type": KIND, "status": "True", "reason": "", "for": 0, "severity": "degraded"}]


class Monitors:
    """What the monitors of a bed said, and the feed that the watch has for it."""

    def __init__(self, bed: WalkCluster) -> None:
        self._bed = bed
        # The boots in which the monitor of a node said that its condition stands.
        self._said: dict[str, set[str]] = defaultdict(set)
        self.begin_watch()

    def begin_watch(self) -> None:
        """A watch that has just started knows nothing."""
        self._feed = services.ConditionFeed(self._bed.cluster)

    def state(self, name: str, status: str, *, again: bool, error: float) -> None:
        """The monitor states the condition. ``again``: as before. ``error``: of its clock, in seconds.

        In every second boot it does not start, so that what the node shows is of the boot before.
        """
        if random.Random(self._bed.boot(name)).random() < 0.5:
            return
        now = (self._bed.now + timedelta(seconds=error)).isoformat()
        stated = self._bed.live(name)["status"]["conditions"]
        before: dict[str, Any] | None = next((one for one in stated if one["type"] == KIND), None)
        if again and before is None:
            return
        if before is not None and (again or before["status"] == status):
            told = {**before, "lastHeartbeatTime": now}
        else:
            told = {
                "type": KIND,
                "status": status,
                "reason": "Stuck",
                "lastTransitionTime": now,
                "lastHeartbeatTime": now,
            }
        if told["status"] == "True":
            self._said[name].add(self._bed.boot(name))
        others = [one for one in stated if one["type"] != KIND]
        self._bed.kube.objects.edit("Node", "", name, lambda node: node["status"].update(conditions=[*others, told]))

    def look(self) -> None:
        """The watch brings the rows in step, and then shows the conditions."""
        services.make_watched_sources(self._bed.now)
        Source.objects.filter(cluster=self._bed.cluster, kind="conditions").update(settings={"table": TABLE})
        with contextlib.suppress(port.KubeError):
            self._bed.sync()
            self._feed.feed(self._bed.kube.list_nodes().items, now=self._bed.now)

    def check(self) -> None:
        """A condition counts only in a boot in which its monitor said that it stands."""
        counted = Occurrence.objects.filter(incident__code=CODE, late_seconds=None, doubt_until=None)
        for name, boot in counted.order_by().values_list("node__name", "boot_id").distinct():
            must(not boot or boot in self._said[name], 55, f"the condition of {name} counts in boot {boot}")
