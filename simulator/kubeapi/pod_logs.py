"""The logs of containers, and ``GET .../pods/NAME/log`` with the options of kubectl.

Like the API server, a read ignores fractions of a second in ``sinceTime`` and may end in the middle of a line.
"""

import itertools
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from simulator.kubeapi import errors, history, resources, store

Object = dict[str, Any]

KEPT_LINES: Final = 2_000  # of a container's run
KEPT_LOGS: Final = 5_000
_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%f000Z"
_Run = tuple[str, str, bool]  # the pod's uid, the container, and whether it is the run before the last restart


class PodLogs:
    """The last lines of each container. A container that ends with an error prints its message first.

    The log of a container that was started again stays until the next restart.
    """

    def __init__(self, objects: store.Store) -> None:
        self._now = objects.now
        self._lines: dict[_Run, deque[tuple[datetime, str]]] = {}
        objects.subscribe(self._changed)

    def write(self, pod: Object, line: str, *, container: str = "", at: datetime | None = None) -> None:
        """A container (by default the pod's first) prints a line. ``at``: now unless given."""
        name = container or pod["spec"]["containers"][0]["name"]
        lines = self._lines.setdefault((pod["metadata"]["uid"], name, False), deque(maxlen=KEPT_LINES))
        lines.append((at or self._now(), line))
        if len(self._lines) > KEPT_LOGS:
            del self._lines[next(iter(self._lines))]

    def _changed(self, change: history.ObjectChange) -> None:
        if change.resource is not resources.PODS:
            return
        pod, previous = change.object, change.previous.obj if change.previous else {}
        if change.kind == history.DELETED:
            for container, is_previous in itertools.product(_names(pod), (False, True)):
                self._lines.pop((pod["metadata"]["uid"], container, is_previous), None)
            return
        before = {status.get("name"): status for status in _statuses(previous)}
        for status in _statuses(pod):
            if name := status.get("name"):
                self._follow(pod, name, status, before.get(name, {}))

    def _follow(self, pod: Object, name: str, status: Object, before: Object) -> None:
        """Notice that a container ended with an error, or was started again."""
        uid = pod["metadata"]["uid"]
        end = (status.get("state") or {}).get("terminated") or {}
        if end.get("reason") == "Error" and end.get("message") and end != (before.get("state") or {}).get("terminated"):
            self.write(pod, end["message"], container=name)
        if status.get("restartCount", 0) > before.get("restartCount", 0):
            self._lines[uid, name, True] = self._lines.pop((uid, name, False), deque())

    def read(self, pod: Object, query: Mapping[str, str]) -> bytes:
        """What a request gets. Raises ``ApiError`` 400."""
        names = _names(pod)
        name, wanted = pod["metadata"]["name"], query.get("container", "")
        if not wanted and len(names) != 1:
            raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: {names}")
        if wanted and wanted not in names:
            raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
        is_previous = query.get("previous") in ("true", "1")
        lines = self._lines.get((pod["metadata"]["uid"], wanted or names[0], is_previous))
        if lines is None and is_previous:
            why = f'previous terminated container "{wanted or names[0]}" in pod "{name}" not found'
            raise errors.bad_request(why)
        since = _since(query.get("sinceTime", ""))
        shown = [(at, line) for at, line in lines or () if since is None or at >= since]
        tail, most = _number("tailLines", query), _number("limitBytes", query)
        if tail is not None:
            shown = shown[-tail:] if tail else []
        stamped = query.get("timestamps") in ("true", "1")
        text = "".join(f"{at.strftime(_FORMAT)} {line}\n" if stamped else f"{line}\n" for at, line in shown)
        return text.encode()[:most]


def _names(pod: Object) -> list[str]:
    return [container["name"] for container in pod["spec"].get("containers") or ()]


def _statuses(pod: Object) -> list[Object]:
    return (pod.get("status") or {}).get("containerStatuses") or []


def _since(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(microsecond=0) if text else None
    except ValueError as error:
        raise errors.bad_request(f"sinceTime: Invalid value: {text!r}: {error}") from error


def _number(name: str, query: Mapping[str, str]) -> int | None:
    text = query.get(name, "")
    if text and not (text.isascii() and text.isdigit()):
        raise errors.bad_request(f"{name}: Invalid value: {text!r}: must be a whole number")
    return int(text) if text else None
