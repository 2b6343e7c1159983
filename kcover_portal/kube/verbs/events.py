"""The verbs for Kubernetes Events."""

import logging
from collections.abc import Iterator
from typing import Any, Final

from kcover_portal.kube import errors, http, values
from kcover_portal.kube.verbs import list_watch
from kcover_portal.kube.wire import base, events as wire

_AT: Final = "/api/v1/events"
_FALLBACK: Final = "default"
logger = logging.getLogger(__name__)


class Events(list_watch.Verbs):
    """The port's verbs for Events."""

    def emit(self, draft: values.EventDraft) -> None:
        try:
            try:
                self._write(draft, namespace=draft.namespace)
            except errors.NotFound:
                self._make_namespace(draft.namespace)
                self._write(draft, namespace=draft.namespace)
        except (errors.NotFound, errors.RefusedByServer) as error:
            if draft.namespace == _FALLBACK or not _about_namespace(error):
                raise
            logger.warning("Event %s goes to namespace %s: %s", draft.name, _FALLBACK, error)
            self._write(draft, namespace=_FALLBACK)

    def list_events(self) -> values.EventList:
        items, version = list_watch.pages(self._connection, _AT, wire.EventObject)
        return values.EventList(items=tuple(item.value() for item in items), resource_version=version)

    def watch_events(self, resource_version: str, *, timeout: float) -> Iterator[values.EventEvent]:
        for kind, event, version in list_watch.watch(
            self._connection, _AT, wire.EventObject, resource_version=resource_version, timeout=timeout
        ):
            yield values.EventEvent(kind=kind, event=event.value() if event else None, resource_version=version)

    def _write(self, draft: values.EventDraft, *, namespace: str) -> None:
        at = list_watch.path("api", "v1", "namespaces", namespace, "events")
        try:
            self._connection.request("POST", at, base.AnyObject, body=event_manifest(draft, namespace=namespace))
        except errors.Conflict as error:
            if http.answer(error).reason != "AlreadyExists":
                raise

    def _make_namespace(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        try:
            self._connection.request("POST", "/api/v1/namespaces", base.AnyObject, body=body)
        except errors.Conflict as error:
            if http.answer(error).reason != "AlreadyExists":
                raise


def event_manifest(draft: values.EventDraft, *, namespace: str) -> dict[str, Any]:
    """Returns the Event's manifest.

    ``involvedObject.namespace`` must be the Event's own namespace, even for a node. eventTime is left out, because the
    API server would then also require the fields of events.k8s.io.
    """
    at = draft.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": draft.name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": draft.involved_kind,
            "name": draft.involved_name,
            "namespace": namespace,
            "uid": draft.involved_uid,
        },
        "reason": draft.reason,
        "message": draft.message,
        "type": draft.type,
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": draft.component},
        "reportingComponent": draft.component,
        "reportingInstance": draft.component,
    }


def _about_namespace(error: errors.KubeError) -> bool:
    """Returns whether the error is about the namespace; a malformed Event would be rejected everywhere."""
    return http.answer(error).reason in ("Forbidden", "NotFound")
