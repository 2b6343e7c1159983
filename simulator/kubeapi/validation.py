"""Validation (422): the rules that a client of this cluster can violate.

Not every rule of Kubernetes is here: names, labels, annotations, taints, Events, immutable fields of pods and jobs, and
disruption budgets. The texts are those of ``k8s.io/apimachinery/pkg/util/validation``.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from simulator.kubeapi import errors, resources

Object = dict[str, Any]
FieldErrors = Iterator[errors.FieldError]

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_KEY_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_MAX_ANNOTATION_BYTES = 256 * 1024
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _invalid(field: str, value: object, why: str) -> errors.FieldError:
    return errors.FieldError(
        field=field, reason="FieldValueInvalid", message=f"Invalid value: {json.dumps(value)}: {why}"
    )


def _required(field: str, why: str = "") -> errors.FieldError:
    return errors.FieldError(
        field=field, reason="FieldValueRequired", message=f"Required value: {why}" if why else "Required value"
    )


def _forbidden(field: str, why: str) -> errors.FieldError:
    return errors.FieldError(field=field, reason="FieldValueForbidden", message=f"Forbidden: {why}")


def check(resource: resources.Resource, obj: Object, *, group: str, old: Object | None = None) -> None:
    """Raises ``ApiError`` 422 with every cause if the object must not be stored.

    ``group`` is the one the request used; ``old`` the object that it would replace.
    """
    causes = [*_metadata(obj)]
    if resource.typed and (checker := _CHECKS.get(resource.kind)):
        causes += checker(obj, group, old)
    if causes:
        name = obj["metadata"].get("name", "")
        raise errors.invalid(resource.group, resource.kind, name, causes)


def _metadata(obj: Object) -> FieldErrors:
    metadata = obj["metadata"]
    name = metadata.get("name", "")
    if len(name) > 253:
        yield _invalid("metadata.name", name, "must be no more than 253 characters")
    if name and not _SUBDOMAIN.fullmatch(name):
        yield _invalid("metadata.name", name, _SUBDOMAIN_TEXT)
    for key, value in (metadata.get("labels") or {}).items():
        yield from _key(key, "metadata.labels")
        yield from _label_value(value, "metadata.labels")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from _key(key.lower(), "metadata.annotations")
    size = sum(len(key) + len(value) for key, value in annotations.items())
    if size > _MAX_ANNOTATION_BYTES:
        yield errors.FieldError(
            field="metadata.annotations",
            reason="FieldValueTooLong",
            message=f"Too long: may not be more than {_MAX_ANNOTATION_BYTES} bytes",
        )


def _key(key: str, field: str) -> FieldErrors:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        yield _invalid(field, key, f"prefix part {_SUBDOMAIN_TEXT}")
    if len(name) > 63:
        yield _invalid(field, key, "name part must be no more than 63 characters")
    elif not _QUALIFIED.fullmatch(name):
        yield _invalid(field, key, _KEY_TEXT)


def _label_value(value: str, field: str) -> FieldErrors:
    if len(value) > 63:
        yield _invalid(field, value, "must be no more than 63 characters")
    elif value and not _QUALIFIED.fullmatch(value):
        yield _invalid(field, value, _VALUE_TEXT)


def _node(obj: Object, group: str, old: Object | None) -> FieldErrors:
    seen = set()
    for at, taint in enumerate(obj.get("spec", {}).get("taints") or ()):
        field = f"spec.taints[{at}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        if not key:
            yield _required(f"{field}.key")
        else:
            yield from _key(key, f"{field}.key")
        yield from _label_value(taint.get("value") or "", f"{field}.value")
        if not effect:
            yield _required(f"{field}.effect")
        elif effect not in _EFFECTS:
            shown = ", ".join(f'"{known}"' for known in sorted(_EFFECTS))
            yield errors.FieldError(
                field=f"{field}.effect",
                reason="FieldValueNotSupported",
                message=f'Unsupported value: "{effect}": supported values: {shown}',
            )
        if (key, effect) in seen:
            yield errors.FieldError(
                field=field, reason="FieldValueDuplicate", message=f"Duplicate value: {json.dumps(taint)}"
            )
        seen.add((key, effect))


def _event(obj: Object, group: str, old: Object | None) -> FieldErrors:
    """The namespace rule for objects that have none, and the fields that events.k8s.io/v1 requires and forbids."""
    involved = obj.get("involvedObject") or {}
    namespace, about = obj["metadata"].get("namespace", ""), involved.get("namespace", "")
    if obj.get("eventTime"):
        matches = about or namespace in ("default", "kube-system")
    else:
        matches = namespace in (("", "default") if not about else (about,))
    if not matches:
        yield _invalid("involvedObject.namespace", about, "does not match event.namespace")
    if obj.get("eventTime"):
        yield from _event_fields(obj, "reportingController" if group else "reportingComponent")
    if group and old is None:
        yield from _new_event(obj)


def _event_fields(obj: Object, controller: str) -> FieldErrors:
    """``controller``: the name that the request's version gives to ``reportingComponent``."""
    for field in ("reportingComponent", "reportingInstance", "action", "reason"):
        if not obj.get(field):
            yield _required(controller if field == "reportingComponent" else field)
    for field, limit in (("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)):
        if len(obj.get(field) or "") > limit:
            yield _invalid(field, "", f"can have at most {limit} characters")


def _new_event(obj: Object) -> FieldErrors:
    if not obj.get("eventTime"):
        yield _required("eventTime")
    if obj.get("type") not in ("Normal", "Warning"):
        yield _invalid("type", "", f"has invalid value: {obj.get('type', '')}")
    for field in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if obj.get(field):
            yield _invalid(field, "", "needs to be unset")


_POD_CHANGEABLE = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations")
_POD_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _fixed_part(spec: Mapping[str, Any]) -> dict[str, Any]:
    fixed = {key: value for key, value in spec.items() if key not in _POD_CHANGEABLE}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{**container, "image": ""} for container in fixed[field]]
    return fixed


def _pod(obj: Object, group: str, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    if not spec.get("containers"):
        yield _required("spec.containers")
    if old is not None and _fixed_part(spec) != _fixed_part(old.get("spec") or {}):
        yield _forbidden("spec", _POD_TEXT)


def _job(obj: Object, group: str, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    pod = template.get("spec") or {}
    if not pod.get("containers"):
        yield _required("spec.template.spec.containers")
    if pod.get("restartPolicy") not in ("Never", "OnFailure"):
        yield errors.FieldError(
            field="spec.template.spec.restartPolicy",
            reason="FieldValueRequired",
            message='Required value: valid values: "OnFailure", "Never"',
        )
    if old is not None and template != (old.get("spec") or {}).get("template"):
        yield _invalid("spec.template", "…", "field is immutable")


def _budget(obj: Object, group: str, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield _invalid("spec", "…", "minAvailable and maxUnavailable cannot be both set")
    for field in ("minAvailable", "maxUnavailable"):
        value = spec.get(field)
        if isinstance(value, str) and not re.fullmatch(r"[0-9]+%", value):
            yield _invalid(
                f"spec.{field}", value, "a valid percent string must be a numeric string followed by an ending '%'"
            )
        elif isinstance(value, int) and value < 0:
            yield _invalid(f"spec.{field}", value, "must be greater than or equal to 0")


def _device_taint_rule(obj: Object, group: str, old: Object | None) -> FieldErrors:
    taint = (obj.get("spec") or {}).get("taint") or {}
    if not taint.get("key"):
        yield _required("spec.taint.key")
    else:
        yield from _key(taint["key"], "spec.taint.key")
    yield from _label_value(taint.get("value") or "", "spec.taint.value")
    effect = taint.get("effect", "")
    if effect not in ("None", "NoSchedule", "NoExecute"):
        yield errors.FieldError(
            field="spec.taint.effect",
            reason="FieldValueNotSupported",
            message=f'Unsupported value: "{effect}": supported values: "NoExecute", "NoSchedule", "None"',
        )


_CHECKS: dict[str, Callable[[Object, str, Object | None], FieldErrors]] = {
    "Node": _node,
    "Event": _event,
    "Pod": _pod,
    "Job": _job,
    "PodDisruptionBudget": _budget,
    "DeviceTaintRule": _device_taint_rule,
}
