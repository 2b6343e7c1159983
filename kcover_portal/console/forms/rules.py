"""The common fields of a rule as a form: its fields from the rule as written, and what they change in it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from django import forms
from django.utils.translation import gettext, gettext_lazy, pgettext_lazy

from kcover import actions
from kcover.faults import fault
from kcover.policy import modes
from kcover_portal.console import fault_names, policy_vocabulary
from kcover_portal.console.forms import widgets

Fields = dict[str, Any]

FIRST: Final[Fields] = {"mode": "shadow", "do_cordon": True, "operator": "all", "approvers": "", "kinds": []}
# The keys of a rule with the fields that write them; actions have fields of their own.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "priority": ("priority",),
    "mode": ("mode",),
    "errorCode": ("xids",),
    "match": ("sxids", "checks", "kinds"),
    "nodeSelector": ("labels", "operator"),
    "budget": ("budget",),
    "cooldown": ("cooldown",),
    "approval": ("approvers", "expires"),
    "escalate": ("escalate",),
}
LISTED: Final = {"sxids": "sxid", "checks": "checks", "kinds": "kinds"}  # fields of ``match``


class RuleFields(forms.Form):
    """The fields of one rule. Values are not judged here: the validation of the text says what is wrong, and where."""

    priority = forms.CharField(label=gettext_lazy("Priority"), required=False, widget=widgets.line(inputmode="numeric"))
    mode = forms.ChoiceField(label=gettext_lazy("Mode"), required=False, widget=widgets.select())
    xids = forms.CharField(label="Xid", required=False, widget=widgets.line(placeholder="48, 79"))
    sxids = forms.CharField(label="SXid", required=False, widget=widgets.line(placeholder="12028"))
    checks = forms.CharField(label=gettext_lazy("Failed checks"), required=False, widget=widgets.line())
    kinds = forms.MultipleChoiceField(
        label=gettext_lazy("Every fault of kind"), required=False, widget=widgets.checkboxes()
    )
    labels = forms.CharField(
        label=gettext_lazy("Node labels"), required=False, widget=widgets.line(placeholder="pool=a100, zone=b")
    )
    operator = forms.ChoiceField(label=gettext_lazy("The node needs"), required=False, widget=widgets.select())
    approvers = forms.ChoiceField(label=pgettext_lazy("rule", "Approval"), required=False, widget=widgets.select())
    expires = forms.CharField(
        label=gettext_lazy("Request expires after"), required=False, widget=widgets.line(placeholder="1h")
    )
    budget = forms.CharField(
        label=gettext_lazy("At most isolated"), required=False, widget=widgets.line(placeholder="10%")
    )
    cooldown = forms.CharField(label=gettext_lazy("Cooldown"), required=False, widget=widgets.line(placeholder="2h"))
    escalate = forms.CharField(
        label=gettext_lazy("Then escalate to an operator with"), required=False, widget=widgets.line()
    )

    def __init__(self, data: Any = None, *, initial: Fields | None = None) -> None:
        super().__init__(data, initial=initial, prefix="rule")
        self._choose("mode", [(mode, label) for mode, label, _ in policy_vocabulary.rule_modes()])
        self._choose("kinds", [(kind, str(fault_names.KINDS.get(kind, kind))) for kind in fault.INCIDENT_KINDS])
        self._choose("operator", [("all", gettext("all of the labels")), ("any", gettext("any of the labels"))])
        needed = [("", gettext("not required")), ("1", gettext("1 person")), ("2", gettext("2 people"))]
        self._choose("approvers", needed)
        for name, action, title in _actions():
            self.fields[f"do_{name}"] = forms.BooleanField(label=title, required=False, widget=widgets.checkbox())
            for attribute in action.attributes:
                field = forms.CharField(
                    label=attribute,
                    required=False,
                    help_text=str(policy_vocabulary.ATTRIBUTES.get(attribute, "")),
                    widget=widgets.line(),
                )
                self.fields[f"{name}-{attribute}"] = field

    def _choose(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    @property
    def common(self) -> list[forms.BoundField]:
        """The fields besides the actions, in order."""
        return [self[name] for name in self.base_fields if name != "escalate"]

    @property
    def steps(self) -> list[tuple[str, forms.BoundField, list[forms.BoundField]]]:
        """The actions in the order in which they run: name, checkbox and attributes."""
        return [
            (name, self[f"do_{name}"], [self[f"{name}-{attribute}"] for attribute in action.attributes])
            for name, action, _ in _actions()
        ]

    @property
    def expires_without_approval(self) -> bool:
        """True if a time is given after which a request expires, and the rule requires no approval."""
        return bool(self.cleaned_data["expires"] and not self.cleaned_data["approvers"])

    def wanted(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The keys of the rule that the fields change, with their new values; None removes a key."""
        before, given = read(content), self.cleaned_data
        changed = {
            key: _written(key, given, content)
            for key, names in GROUPS.items()
            if any(_plain(before.get(name)) != _plain(given.get(name)) for name in names)
        }
        steps = [name for name in self.fields if name not in self.base_fields]
        if not content or any(_plain(before.get(name)) != _plain(given.get(name)) for name in steps):
            changed["actions"] = _written_actions(given, content)
        return changed


def read(content: Mapping[str, Any]) -> Fields:
    """The values of the fields for a rule as it is written; of one that is not valid, as far as they are clear."""
    match, selector = _mapping(content.get("match")), _mapping(content.get("nodeSelector"))
    approval = content.get("approval")
    asks = approval is True or (isinstance(approval, dict) and approval.get("required", True) is True)
    fields: Fields = {key: _text(content.get(key)) for key in ("priority", "budget", "cooldown", "escalate")}
    fields |= {field: ", ".join(_strings(match.get(key))) for field, key in LISTED.items()}
    fields |= {
        "mode": _text(content.get("mode")) or "enforce",
        "xids": ", ".join(_strings(content.get("errorCode"))),
        "kinds": _strings(match.get("kinds")),
        "labels": ", ".join(f"{key}={_text(value)}" for key, value in _mapping(selector.get("labels")).items()),
        "operator": _text(selector.get("operator")) or "all",
        "approvers": _text(_mapping(approval).get("approvers", 1)) if asks else "",
        "expires": _text(_mapping(approval).get("expires")),
    }
    for action in _listed(content):
        name = _text(action.get("name"))
        fields[f"do_{name}"] = True
        fields |= {f"{name}-{key}": _text(value) for key, value in _mapping(action.get("attribute")).items()}
    return fields


def _written(key: str, given: Fields, content: Mapping[str, Any]) -> Any:
    if key == "errorCode":
        return _split(given["xids"]) or None
    if key == "match":
        written = {name: _split(given[field]) for field, name in LISTED.items()}
        return {k: v for k, v in {**_mapping(content.get("match")), **written}.items() if v != []} or None
    if key == "nodeSelector":
        pairs = (pair.partition("=") for pair in re.split(r"[\s,]+", given["labels"]) if pair)
        labels = {name: value for name, _, value in pairs}
        return {"operator": given["operator"], "labels": labels} if labels else None
    if key == "approval":
        return _written_approval(given, content.get("approval"))
    return _scalar(given[key])


def _written_approval(given: Fields, old: Any) -> Any:
    if not given["approvers"]:
        return None
    written = {**_mapping(old), "required": True, "approvers": int(given["approvers"]), "expires": given["expires"]}
    if written["approvers"] == 1 and "approvers" not in _mapping(old):
        del written["approvers"]
    return {key: value for key, value in written.items() if value != ""}


def _written_actions(given: Fields, content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The actions that stay, in their order, then the new ones. What the form does not know stays as it is."""
    known = {name: action for name, action, _ in _actions()}
    present = {_text(action.get("name")): action for action in _listed(content)}
    fresh = [name for name in known if name not in present]
    written = []
    for name in (*present, *fresh):
        old = present.get(name, {"name": name})
        if name in known and not given[f"do_{name}"]:
            continue
        attributes = dict(_mapping(old.get("attribute")))
        for attribute in known[name].attributes if name in known else ():
            value = given[f"{name}-{attribute}"]
            if value == "":
                attributes.pop(attribute, None)
            elif value != _text(attributes.get(attribute)):
                attributes[attribute] = value
        kept = {key: value for key, value in old.items() if key != "attribute"}
        written.append(kept | ({"attribute": attributes} if attributes else {}))
    return written


def _actions() -> Iterator[tuple[str, actions.PolicyAction, str]]:
    for spec in actions.in_order():
        if spec.policy is not None:
            yield spec.policy.name, spec.policy, gettext(spec.title)


def _listed(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The actions of a rule; without any, KCE's default."""
    listed = content.get("actions")
    found = [{"name": "cordon"}] if listed is None else listed if isinstance(listed, list) else []
    return [action for action in found if isinstance(action, dict)]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _strings(value: Any) -> list[str]:
    return [_text(item) for item in value] if isinstance(value, list) else []


def _split(value: str | list[str]) -> list[str]:
    return list(value) if isinstance(value, list) else [word for word in re.split(r"[\s,]+", value) if word]


def _text(value: Any) -> str:
    """A scalar as a document writes it."""
    if value is None or isinstance(value, dict | list):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _scalar(text: str) -> Any:
    """What YAML reads: whole numbers of priority and budget are numbers, an empty field is no key."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"0|[1-9][0-9]{0,9}", text) else text or None


def _plain(value: Any) -> Any:
    """Equal for fields that say the same: no checkbox is an unchecked one."""
    return value or ""


assert set(modes.RULE_MODES) <= set(policy_vocabulary.VALUES["mode"])
