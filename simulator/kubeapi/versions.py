"""One stored object under each of its group versions.

PodDisruptionBudgets differ only in their apiVersion. Events of events.k8s.io/v1 use other field names than the stored
core/v1 (``k8s.io/kubernetes/pkg/apis/events/v1/conversion.go``).
"""

from typing import Any

from simulator.kubeapi import resources

Object = dict[str, Any]

_EVENT_FIELDS = {  # core/v1: events.k8s.io/v1
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_EVENT_FIELDS_BACK = {new: old for old, new in _EVENT_FIELDS.items()}


def api_version(group: str, version: str) -> str:
    """``v1`` or ``group/version``."""
    return f"{group}/{version}" if group else version


def renames(resource: resources.Resource, group: str) -> bool:
    """Return whether the kind has other field names in that group than in the one where it is stored."""
    return resource is resources.EVENTS and group != resource.group


def from_request(resource: resources.Resource, group: str, obj: Object) -> Object:
    """The stored form of an object in a request."""
    if not renames(resource, group):
        return obj
    return {_EVENT_FIELDS_BACK.get(key, key): value for key, value in obj.items()}


def to_response(resource: resources.Resource, group: str, version: str, obj: Object) -> Object:
    """The requested form of a stored object."""
    if renames(resource, group):
        obj = {_EVENT_FIELDS.get(key, key): value for key, value in obj.items()}
    return {**obj, "apiVersion": api_version(group, version)}
