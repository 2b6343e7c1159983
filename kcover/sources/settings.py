"""The kinds of sources and their settings, as people give them: JSON over REST, ``key=value`` on the command line."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

from kcover import reasons
from kcover.sources import conditions
from kcover.sources.observation import Unreadable
from kcover.values import setting_values
from kcover.values.quote import short_text

WATCHED: Final = ("pods", "events", "conditions")  # fed by the watch; they exist for each cluster
PUSHED: Final = ("alertmanager", "cloudevents")  # other systems send to them
ADDRESSED: Final = (
    "loki",
    "gpud",
    "prometheus",
    "performance",
)  # the portal asks them at an address, with a token if there is one
PULLED: Final = (*ADDRESSED, "pod-logs")  # the portal asks them; for logs of pods it asks the cluster's API server
KINDS: Final = (*WATCHED, *PUSHED, *PULLED)
# Their times are those of the node's clock: NVSentinel's monitors, which send cloudevents, run on the node, too.
NODE_CLOCKS: Final = (*WATCHED, "cloudevents", "loki", "gpud", "pod-logs")
MAX_TEXT, MAX_NAMES = 500, 50
# What the values of a query for the performance of jobs are: seconds a step, or steps (samples, tokens) a second.
MEASURES: Final = ("time", "rate")
REQUIRED: Final = MappingProxyType({"performance": ("query",)})  # settings without a default

CLOCK_ERROR_SECONDS: Final = 5  # by which a source's clock may be ahead of the portal's
# After a fault until its report begins: an alert waits for the scrape, its ``for`` and its query, which may have a
# range (``for: 5m`` over ``[5m]``). A sample waits for the scrape, a condition for its writer. An event and a line of
# a log have the time of the fault itself.
DELAY_SECONDS: Final = MappingProxyType({"alertmanager": 600, "prometheus": 60, "conditions": 60})
UNTIMED: Final = timedelta(minutes=10)  # after the start of a boot, until a state without a time of its own is of it

Reader = Callable[[object], Any]


def _text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT or "\0" in value:
        raise Unreadable("", reasons.of("source_setting_text", most=MAX_TEXT))
    return value


def _names(value: object) -> list[str]:
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list) or not 0 < len(names) <= MAX_NAMES or not all(map(_is_name, names)):
        raise Unreadable("", reasons.of("source_setting_list", most=MAX_NAMES))
    return names


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT and "\0" not in value


def _table(value: object) -> list[dict[str, Any]]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise Unreadable("", reasons.of("source_setting_table", problem=str(error)[:200])) from error
    return conditions.table_of(value)


def _presets(value: object) -> list[str]:
    names = _names(value)
    for name in names:
        if name not in conditions.PRESETS:
            known = ", ".join(conditions.PRESETS)
            raise Unreadable("", reasons.of("condition_preset_unknown", preset=short_text(name), known=known))
    return names


def _measure(value: object) -> str:
    if value not in MEASURES:
        raise Unreadable("", reasons.of("source_setting_measure", known=", ".join(MEASURES)))
    return str(value)


_SECONDS = setting_values.number(1, 86_400)
_OWN: Final[Mapping[str, Mapping[str, Reader]]] = MappingProxyType(
    {
        "pods": {},
        "events": {"namespaces": _names, "reasons": _names},
        "conditions": {"presets": _presets, "table": _table},
        "alertmanager": {"node_label": _names},
        "cloudevents": {"max_age": setting_values.number(60, 90 * 86_400), "maintenance_types": _names},
        "loki": {
            "tenant": _text,
            "stream": _text,
            "pod_namespaces": _names,
            "pod_patterns": _names,
            "lateness": setting_values.number(1, 3_600),
            "node_label": _names,
            "interval": _SECONDS,
        },
        "gpud": {"node": _text, "insecure": setting_values.boolean, "interval": _SECONDS},
        "prometheus": {"query": _text, "node_label": _names, "interval": _SECONDS},
        "performance": {
            "query": _text,
            "measures": _measure,
            "slower_by": setting_values.number(10, 900),
            "hold": setting_values.number(60, 86_400),
            "warm_up": setting_values.number(0, 86_400),
            "least": setting_values.number(10, 60),
            "pod_label": _names,
            "job_label": _names,
            "namespace_label": _names,
            "shape_label": _names,
            "interval": _SECONDS,
        },
        "pod-logs": {
            "pod_namespaces": _names,
            "pod_patterns": _names,
            "lateness": setting_values.number(1, 3_600),
            "interval": _SECONDS,
        },
    }
)
_ERROR = setting_values.number(0, 3_600)
SETTINGS: Final[Mapping[str, Mapping[str, Reader]]] = MappingProxyType(
    {
        kind: {**own, "clock_error": _ERROR, **({"delay": _ERROR} if kind in DELAY_SECONDS else {})}
        for kind, own in _OWN.items()
    }
)


def doubt(kind: str, given: Mapping[str, Any]) -> timedelta:
    """By how much a fault may be older than the time that a source of this kind gives it. ``given``: its settings."""
    delay = given.get("delay", DELAY_SECONDS.get(kind, 0))
    return timedelta(seconds=delay + given.get("clock_error", CLOCK_ERROR_SECONDS))


def read(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in their canonical form. Raises Unreadable with the name of the setting.

    ``kind``: one of KINDS. A value of None removes the setting.
    """
    readers = SETTINGS[kind]
    found = {}
    for name, value in given.items():
        if name not in readers:
            known = ", ".join(sorted(readers)) or reasons.of("none")
            raise Unreadable(name, reasons.of("source_setting_unknown", kind=kind, name=short_text(name), known=known))
        try:
            if value is not None:
                found[name] = readers[name](value)
        except setting_values.ValueInvalid as error:
            raise Unreadable(name, error.reason) from error
        except Unreadable as error:
            raise Unreadable("/".join(part for part in (name, error.path) if part), error.reason) from error
    return found
