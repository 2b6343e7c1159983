"""The verbs for custom resources: lists, and the conditions of an object's status."""

from datetime import datetime
from typing import Any

from kcover_portal.kube import bounds, errors, values
from kcover_portal.kube.verbs import list_watch
from kcover_portal.kube.wire import base
from kcover_portal.kube.wire import custom_objects as wire


class CustomObjects(list_watch.Verbs):
    """The port's verbs for custom resources."""

    def custom_objects(self, kind: values.CustomKind) -> list[values.CustomObject]:
        try:
            items, _ = list_watch.pages(
                self._connection, _path(kind), wire.CustomResource, most=bounds.MAX_CUSTOM_BYTES
            )
        except errors.NotFound:
            return []
        return [item.value(kind) for item in items]

    def state_condition(
        self, kind: values.CustomKind, name: str, *, uid: str, condition: values.StatedCondition, at: datetime
    ) -> None:
        self._connection.request(
            "PATCH",
            f"{_path(kind)}{list_watch.path(name)}/status",
            base.AnyObject,
            body=condition_patch(condition, uid=uid, at=at),
            content_type="application/merge-patch+json",
        )


def condition_patch(condition: values.StatedCondition, *, uid: str, at: datetime) -> dict[str, Any]:
    """Returns the merge patch of a status with this one condition, of the object with this uid only."""
    stated = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": condition.generation,
        "lastTransitionTime": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return {"metadata": {"uid": uid}, "status": {"conditions": [stated]}}


def _path(kind: values.CustomKind) -> str:
    return list_watch.path("apis", kind.group, kind.version, kind.plural)
