"""What the portal changed on a node, recorded on the node itself in one annotation.

With it the portal removes exactly what it added, even if others changed the node meanwhile (invariants 18, 19, 22), and
anybody can see the changes with kubectl.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kcover.nodes import node_stage
from kcover.values.kube_names import is_fixed_label

ANNOTATION = "kcover.io/rescue"
STATE_LABEL = node_stage.STATE_LABEL
MAX_INTEGER_DIGITS = 18  # as many as fit into 64 bits

Taint = tuple[str, str, str]  # key, value, effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The changes of one rescue to one node.

    ``rescue``: the id of the rescue that made them. ``cordon``: the portal cordoned the node. ``foreign_cordon``: it
    was already cordoned by somebody else. ``taints`` are the (key, value, effect) that the portal added. ``labels``
    maps each label that the portal set to its previous value, None for none. ``given``: the values of labels that the
    portal sets once; another value found later is somebody else's. The portal's state label changes and is not in it.
    ``devices``: the (DeviceTaintRule, device) that the portal tainted, noted before the rule is created.
    """

    rescue: int
    cordon: bool = False
    foreign_cordon: bool = False
    taints: tuple[tuple[str, str, str], ...] = ()
    labels: Mapping[str, str | None] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[tuple[str, str], ...] = ()

    def with_cordon(self, *, was_unschedulable: bool) -> "Marks":
        """The marks after a cordon; an earlier cordon is somebody else's and stays."""
        if self.cordon or self.foreign_cordon:
            return self
        return replace(self, cordon=not was_unschedulable, foreign_cordon=was_unschedulable)

    def with_taint(self, taint: tuple[str, str, str], *, was_there: bool) -> "Marks":
        """The marks after adding a taint; a taint that was already there is somebody else's."""
        if was_there or taint in self.taints:
            return self
        return replace(self, taints=(*self.taints, taint))

    def without_taint(self, taint: tuple[str, str, str]) -> "Marks":
        """The marks after the removal of a taint of the portal's own."""
        return replace(self, taints=tuple(found for found in self.taints if found != taint))

    def with_device(self, rule: str, device: str) -> "Marks":
        """The marks before a device is tainted by this rule."""
        return self if (rule, device) in self.devices else replace(self, devices=(*self.devices, (rule, device)))

    def without_devices(self, rules: Collection[str]) -> "Marks":
        """The marks without these rules: they were not created, are deleted, or are not the portal's."""
        return replace(self, devices=tuple(found for found in self.devices if found[0] not in rules))

    def with_label(self, key: str, *, before: str | None, value: str | None = None) -> "Marks":
        """The marks after setting a label; the first ``before`` is what is restored. ``value``: see ``given``."""
        given = self.given if value is None else {**self.given, key: value}
        if key in self.labels:
            return replace(self, given=given)
        return replace(self, labels={**self.labels, key: before}, given=given)

    def labels_to_restore(self, labels: Mapping[str, str]) -> dict[str, str | None]:
        """The label values to set so that a node with these labels gets its previous ones; None removes a label."""
        return {
            key: before
            for key, before in self.labels.items()
            if labels.get(key) != before and labels.get(key) == self.given.get(key, labels.get(key))
        }

    def proved(self, known: Sequence["Marks"], *, own_taints: Collection[str]) -> "Marks":
        """Those of these changes that the portal's own records state. The node's kubelet may write the annotation.

        ``known``: the marks of the records, oldest first. Taints with a key of ``own_taints`` are the portal's by their
        key and need no record: the newest may be lost, with a restored database. Previous values of labels are those of
        the records; the state label, which a kubelet may set by itself, has the one of the annotation. Rules of devices
        prove themselves (``device_rules.is_own``).
        """
        stated = {taint for record in known for taint in record.taints}
        before = {key: value for record in reversed(known) for key, value in record.labels.items()}
        given = {key: value for record in known for key, value in record.given.items()}
        # A record may be of a write that was not made. The mark says which of the stated values was given last.
        given |= {key: value for record in known for key, value in record.given.items() if value == self.given.get(key)}
        labels = {key: before[key] for key in self.labels if key in before and not is_fixed_label(key)}
        if STATE_LABEL in self.labels:
            labels[STATE_LABEL] = self.labels[STATE_LABEL]
        foreign = self.foreign_cordon or any(record.foreign_cordon for record in known)
        return replace(
            self,
            cordon=self.cordon and not foreign,
            foreign_cordon=foreign,
            taints=tuple(one for one in self.taints if one in stated or one[0] in own_taints),
            labels=labels,
            given={key: given[key] for key in labels if key in given},
        )

    def stated_by(self, record: "Marks") -> bool:
        """Returns whether this record states all of these changes that need one to be taken back, or to be left."""
        return (
            set(self.taints) <= set(record.taints)
            and self.labels.keys() <= {*record.labels, STATE_LABEL}
            and self.given.items() <= record.given.items()
            and self.foreign_cordon <= record.foreign_cordon
        )

    def unproved(self, proved: "Marks", *, labels: Mapping[str, str], taints: Collection[Taint]) -> "Marks":
        """Those of these changes that ``proved`` lacks and that a node with these labels and taints still shows."""
        found = self.labels_to_restore(labels)
        rest = {key: before for key, before in self.labels.items() if key in found and key not in proved.labels}
        return Marks(
            rescue=self.rescue,
            taints=tuple(one for one in self.taints if one in taints and one not in proved.taints),
            labels=rest,
            given={key: value for key, value in self.given.items() if key in rest},
        )

    def to_json(self) -> dict[str, Any]:
        """The content of the annotation; the database stores the same."""
        return {
            "rescue": self.rescue,
            "changed": {
                "cordon": self.cordon,
                "taints": [list(taint) for taint in self.taints],
                "labels": sorted(self.labels),
                **({"given": dict(self.given)} if self.given else {}),
                **({"devices": [list(pair) for pair in self.devices]} if self.devices else {}),
            },
            "before": {"unschedulable": self.foreign_cordon, "labels": dict(self.labels)},
        }

    def render(self) -> str:
        """The annotation's text."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))


def parse(text: str) -> dict[str, Any]:
    """The JSON of the annotation; empty for an empty text, or for a text that the portal did not write.

    Numbers that the database cannot store (NaN, infinity, more than 64 bits) make the whole text unreadable.
    """
    try:
        content = (
            json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_short_integer) if text else {}
        )
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def _short_integer(text: str) -> int:
    if len(text) > MAX_INTEGER_DIGITS:
        raise ValueError(f"the integer has more than {MAX_INTEGER_DIGITS} digits")
    return int(text)


def read(content: Mapping[str, Any]) -> Marks | None:
    """Marks from the result of ``to_json``; None for anything else. Unreadable marks are never guessed."""
    try:
        changed, before = content["changed"], content["before"]
        return Marks(
            rescue=int(content["rescue"]),
            cordon=changed["cordon"] is True,
            foreign_cordon=before["unschedulable"] is True,
            taints=tuple((str(k), str(v), str(e)) for k, v, e in changed["taints"]),
            labels={str(k): None if v is None else str(v) for k, v in before["labels"].items()},
            given={str(k): str(v) for k, v in changed.get("given", {}).items()},
            devices=tuple((str(rule), str(device)) for rule, device in changed.get("devices", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
