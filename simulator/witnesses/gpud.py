"""A stand-in for the gpud of each node: ``/gpud/NODE/v1/states`` and ``/gpud/NODE/v1/events``.

The events are the Xids of the kernel log. The state of the Xid component is Unhealthy while a machine has a fault.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

from kcover.faults import catalog, xid

XID_COMPONENT: Final = "accelerator-nvidia-error-xid"
QUIET_COMPONENTS: Final = ("accelerator-nvidia-infiniband", "disk", "os")
MAX_EVENTS: Final = 500  # of a node
_TYPES: Final = {"fatal": "Fatal", "degraded": "Critical", "warning": "Warning"}


@dataclass(slots=True)
class Gpud:
    """``active``: the codes of the Xids that are present on a node, with their slots; KeyError: no such node."""

    active: Callable[[str], Collection[tuple[int, str]]]
    silent: set[str] = field(default_factory=set)  # nodes whose gpud does not run
    events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add_kernel_line(self, node: str, line: str, at: datetime) -> None:
        """Stores the event of an Xid."""
        found = xid.parse_line(line)
        if found is None or found.kind != "xid":
            return
        kept = self.events.setdefault(node, [])
        kept.append(
            {
                "component": XID_COMPONENT,
                "time": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "name": "error_xid",
                "type": _TYPES.get(catalog.severity("xid", found.code, fatal=found.fatal), "Info"),
                "message": _message(found.code, found.pci or ""),
            }
        )
        del kept[:-MAX_EVENTS]

    async def states(self, request: web.Request) -> web.Response:
        """``GET /v1/states``."""
        node = request.match_info["node"]
        try:
            active = list(self.active(node))
        except KeyError:
            raise web.HTTPNotFound from None
        if node in self.silent:
            raise web.HTTPBadGateway
        state: dict[str, Any] = {"name": "error_xid", "health": "Healthy", "reason": "XIDComponent is healthy"}
        if active:
            code, pci = active[-1]
            state |= {
                "health": "Unhealthy",
                "reason": _message(code, pci),
                "suggested_actions": {"description": "", "repair_actions": ["REBOOT_SYSTEM"]},
            }
        shown = [{"component": XID_COMPONENT, "states": [state]}]
        quiet = [{"component": name, "states": [{"name": name, "health": "Healthy"}]} for name in QUIET_COMPONENTS]
        return web.json_response(shown + quiet)

    async def list_events(self, request: web.Request) -> web.Response:
        """``GET /v1/events?startTime=SECONDS``."""
        node = request.match_info["node"]
        if node in self.silent:
            raise web.HTTPBadGateway
        since = datetime.fromtimestamp(int(request.query.get("startTime", "0")), tz=UTC)
        found = [event for event in self.events.get(node, ()) if datetime.fromisoformat(event["time"]) >= since]
        body = {
            "component": XID_COMPONENT,
            "startTime": since.isoformat(),
            "endTime": datetime.now(UTC).isoformat(),
            "events": found[::-1],  # the newest first
        }
        return web.json_response([body] if found else [])


def _message(code: int, pci: str) -> str:
    entry = catalog.xid(code)
    title = f" ({entry.title})" if entry is not None else ""
    return f"XID {code}{title} detected on GPU PCI:{pci}"
