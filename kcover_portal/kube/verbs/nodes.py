"""The verbs for nodes."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from kcover import reasons
from kcover_portal.kube import change as changes, errors, values
from kcover_portal.kube.verbs import list_watch
from kcover_portal.kube.wire import base, nodes as wire

_AT: Final = "/api/v1/nodes"
# Nodes change every few minutes by themselves. Five lost races in a row mean that another writer is competing.
_TRIES: Final = 5
# From the caller's checks to the last patch. What was checked, such as the mode, may have changed after a longer time.
WRITE_WITHIN_SECONDS: Final = 20.0


class Nodes(list_watch.Verbs):
    """The port's verbs for nodes."""

    def version(self) -> str:
        return self._connection.request("GET", "/version", base.Version).git_version

    def list_nodes(self) -> values.NodeList:
        items, version = list_watch.pages(self._connection, _AT, wire.NodeObject)
        return values.NodeList(items=tuple(item.value() for item in items), resource_version=version)

    def count_nodes(self) -> int:
        page: base.Page[base.AnyObject] = self._connection.request(
            "GET", _AT, base.Page[base.AnyObject], query={"limit": "1"}
        )
        return len(page.items or ()) + (page.metadata.remaining or 0)

    def watch_nodes(self, resource_version: str, *, timeout: float) -> Iterator[values.NodeEvent]:
        for kind, node, version in list_watch.watch(
            self._connection, _AT, wire.NodeObject, resource_version=resource_version, timeout=timeout
        ):
            yield values.NodeEvent(kind=kind, node=node.value() if node else None, resource_version=version)

    def get_node(self, name: str) -> values.Node:
        return self._read(name).value()

    def apply_node(
        self,
        name: str,
        change: values.NodeChange | values.DesiredChange,
        *,
        expect: Callable[[values.Node], None] | None = None,
    ) -> tuple[values.Node, values.Node]:
        conflict: errors.Conflict | None = None
        began = time.monotonic()
        for _ in range(_TRIES):
            node = self._read(name)
            before = node.value()
            if expect is not None:
                expect(before)
            patch = changes.merge_patch(node, change if isinstance(change, values.NodeChange) else change(before))
            if patch is None:
                return before, before
            if time.monotonic() - began >= WRITE_WITHIN_SECONDS:
                late = reasons.of("node_write_late", node=name, seconds=int(WRITE_WITHIN_SECONDS))
                raise errors.Unavailable(late) from conflict
            try:
                after = self._connection.request(
                    "PATCH",
                    list_watch.path("api", "v1", "nodes", name),
                    wire.NodeObject,
                    body=patch,
                    content_type="application/merge-patch+json",
                )
            except errors.Conflict as error:
                conflict = error
                continue
            return before, after.value()
        raise errors.Conflict(reasons.of("node_changed_often", node=name, count=_TRIES)) from conflict

    def _read(self, name: str) -> wire.NodeObject:
        return self._connection.request("GET", list_watch.path("api", "v1", "nodes", name), wire.NodeObject)
