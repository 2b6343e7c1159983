"""A RescuePolicy as rules, read from a parsed document, with every mistake named by its path.

KCE's ``rescue.ksyun.com/v1`` is read unchanged; ``kcover.io/v1`` is the same and adds per rule ``mode``,
``onDrainTimeout``, ``verify``, ``escalate`` and the action ``taint`` (semantics section 4, interfaces section 5).
What an installation cannot carry out is refused here, when it is saved, not when it is needed.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kcover import waits

KSYUN, KCOVER = "rescue.ksyun.com/v1", "kcover.io/v1"
MODES = ("paused", "shadow", "approve", "enforce")  # strictest first
RULE_MODES = ("shadow", "approve", "enforce")
DRAIN_TIMEOUTS = ("hold", "proceed", "force")
KSYUN_ACTIONS = ("cordon", "drain", "reboot", "enableWarmStandby", "unCordon")
OWN_ACTIONS = ("taint",)
LATER_ACTIONS = ("enableWarmStandby", "label", "gpuReset", "restartJobs", "notify", "webhook", "runChecks")
LATER_KINDS = ("WarmStandbyPolicy",)
LATER_KEYS = ("match", "budget", "cooldown", "approval")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
CODE = re.compile(r"0|[1-9][0-9]{0,9}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where it is (keys and indexes from the root of the document) and what to write instead."""

    path: tuple[str | int, ...]
    message: str


class PolicyInvalid(ValueError):
    """A document that is no policy; ``problems`` lists every mistake found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, p.path))}: {p.message}" for p in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action as written: ``attribute`` holds its strings (waittime, unCordon, key, value, effect)."""

    name: str
    attribute: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. ``codes`` None: any code that is a fault of the node. ``labels`` None: any node."""

    index: int
    priority: int
    codes: tuple[str, ...] | None = None
    operator: str = "all"
    labels: Mapping[str, str] | None = None
    actions: tuple[Action, ...] = ()
    mode: str = "enforce"
    on_drain_timeout: str = "hold"
    verify: bool = False
    verify_agent: bool = True
    escalate: str | None = None

    @property
    def uncordons(self) -> bool:
        """Whether the node is to be schedulable again after the reboot."""
        return any(
            action.name == "unCordon" or (action.name == "reboot" and action.attribute.get("unCordon") == "true")
            for action in self.actions
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One RescuePolicy document."""

    name: str
    api_version: str
    rules: tuple[Rule, ...]


def read(document: object) -> Policy:
    """Reads one parsed document; raises PolicyInvalid with every problem found."""
    reader = _Reader()
    policy = reader.policy(document)
    if reader.problems or policy is None:
        raise PolicyInvalid(reader.problems)
    return policy


class _Reader:
    """Walks the document and collects problems instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.own = False

    def policy(self, document: object) -> Policy | None:
        if not isinstance(document, dict):
            self._problem((), "a policy is a mapping with apiVersion, kind, metadata and spec")
            return None
        version, kind = document.get("apiVersion"), document.get("kind")
        if kind in LATER_KINDS:
            self._problem(("kind",), f"{kind} is not carried out by this version: take this document out")
            return None
        self._only(document, ("apiVersion", "kind", "metadata", "spec"), ())
        if version not in (KSYUN, KCOVER):
            self._problem(("apiVersion",), f"unknown apiVersion {version!r}: write {KSYUN} or {KCOVER}")
        self.own = version == KCOVER
        if kind != "RescuePolicy":
            self._problem(("kind",), f"unknown kind {kind!r}: write RescuePolicy")
        name = self._name(document.get("metadata"))
        spec = document.get("spec")
        if not isinstance(spec, dict):
            self._problem(("spec",), "spec is missing: write spec: with a list of rules")
            return None
        self._only(spec, ("rules",), ("spec",))
        rules = spec.get("rules")
        if not isinstance(rules, list) or not rules:
            self._problem(("spec", "rules"), "rules must be a list with at least one rule")
            return None
        read = tuple(self._rule(rule, index) for index, rule in enumerate(rules))
        return Policy(name=name, api_version=str(version), rules=read)

    def _name(self, metadata: object) -> str:
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(name, str) or not NAME.fullmatch(name):
            self._problem(
                ("metadata", "name"), "a policy needs a name of lower-case letters, digits, '-' and '.', at most 253"
            )
            return ""
        return name

    def _rule(self, rule: object, index: int) -> Rule:
        at = ("spec", "rules", index)
        if not isinstance(rule, dict):
            self._problem(at, "a rule is a mapping with priority, errorCode, nodeSelector and actions")
            return Rule(index=index, priority=0)
        own_keys = ("mode", "onDrainTimeout", "verify", "escalate")
        for key in LATER_KEYS:
            if key in rule:
                self._problem((*at, key), f"{key} is not carried out by this version: take it out")
        known = ("priority", "errorCode", "nodeSelector", "actions")
        for key in own_keys:
            if key in rule and not self.own:
                self._problem((*at, key), f"{key} needs apiVersion: {KCOVER}")
        self._only(rule, (*known, *own_keys, *LATER_KEYS), at)
        actions = self._actions(rule.get("actions"), (*at, "actions"))
        operator, labels = self._selector(rule.get("nodeSelector"), (*at, "nodeSelector"))
        verify, verify_agent = self._verify(rule.get("verify"), (*at, "verify"))
        read = Rule(
            index=index,
            priority=self._priority(rule.get("priority", 0), (*at, "priority")),
            codes=self._codes(rule.get("errorCode"), (*at, "errorCode")),
            operator=operator,
            labels=labels,
            actions=actions,
            mode=self._choice(rule, "mode", RULE_MODES, "enforce", at),
            on_drain_timeout=self._choice(rule, "onDrainTimeout", DRAIN_TIMEOUTS, "hold", at),
            verify=verify,
            verify_agent=verify_agent,
            escalate=self._escalate(rule.get("escalate"), (*at, "escalate")),
        )
        if not actions and read.escalate is None and "actions" in rule and rule["actions"] == []:
            self._problem((*at, "actions"), "a rule needs at least one action, cordon for example")
        self._preconditions(actions, rule, at)
        return read

    def _priority(self, value: object, at: tuple[str | int, ...]) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**31 - 1:
            self._problem(at, f"priority must be a whole number from 0, not {value!r}")
            return 0
        return value

    def _codes(self, value: object, at: tuple[str | int, ...]) -> tuple[str, ...] | None:
        if value is None:
            return None
        if not isinstance(value, list) or not value:
            self._problem(at, 'errorCode must be a list of strings, ["62"] for example; leave it out for any code')
            return None
        codes = []
        for index, code in enumerate(value):
            if not isinstance(code, str) or not CODE.fullmatch(code):
                written = f'"{code}"' if isinstance(code, int) and not isinstance(code, bool) else '"62" for example'
                self._problem((*at, index), f"an error code is a string of digits: write {written}, not {code!r}")
            else:
                codes.append(code)
        return tuple(codes)

    def _selector(self, value: object, at: tuple[str | int, ...]) -> tuple[str, Mapping[str, str] | None]:
        if value is None:
            return "all", None
        if not isinstance(value, dict):
            self._problem(at, "nodeSelector is a mapping with operator (any or all) and labels")
            return "all", None
        self._only(value, ("operator", "labels"), at)
        operator = value.get("operator")
        if operator not in ("any", "all"):
            what = "is missing" if operator is None else f"{operator!r} is unknown"
            self._problem((*at, "operator"), f'operator {what}: write "any" (one label is enough) or "all"')
            operator = "all"
        labels = value.get("labels")
        if labels is None:
            return str(operator), {}
        if not isinstance(labels, dict):
            self._problem((*at, "labels"), "labels is a mapping of label names to strings")
            return str(operator), {}
        for key, wanted in labels.items():
            if not isinstance(key, str) or not LABEL_KEY.fullmatch(key):
                self._problem((*at, "labels", key), f"{key!r} is no label name")
            elif not isinstance(wanted, str) or not LABEL_VALUE.fullmatch(wanted):
                self._problem(
                    (*at, "labels", key), f'a label\'s value is a short string, "true" for example: {wanted!r}'
                )
        return str(operator), labels

    def _actions(self, value: object, at: tuple[str | int, ...]) -> tuple[Action, ...]:
        if value is None:
            return (Action(name="cordon"),)  # KCE: the global rule's default is cordon on
        if not isinstance(value, list):
            self._problem(at, "actions is a list of mappings with a name")
            return ()
        actions: list[Action] = []
        for index, item in enumerate(value):
            action = self._action(item, (*at, index))
            if action is None:
                continue
            if any(other.name == action.name for other in actions):
                self._problem((*at, index, "name"), f"{action.name} is named twice")
            actions.append(action)
        return tuple(actions)

    def _action(self, item: object, at: tuple[str | int, ...]) -> Action | None:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            self._problem(at, "an action is a mapping with a name")
            return None
        name = item["name"]
        known = KSYUN_ACTIONS + (OWN_ACTIONS if self.own else ())
        if name in LATER_ACTIONS and (self.own or name in KSYUN_ACTIONS):
            self._problem((*at, "name"), f"action {name} is not carried out by this version")
            return None
        if name not in known:
            if name in OWN_ACTIONS:
                self._problem((*at, "name"), f"action {name} needs apiVersion: {KCOVER}")
                return None
            message = f"unknown action {name!r}: use one of {', '.join(known)}{_meant(name, known)}"
            self._problem((*at, "name"), message)
            return None
        self._only(item, ("name", "attribute"), at)
        attribute = item.get("attribute")
        if attribute is None:
            return Action(name=name)
        if not isinstance(attribute, dict):
            self._problem((*at, "attribute"), "attribute is a mapping")
            return Action(name=name)
        return Action(name=name, attribute=self._attribute(name, attribute, (*at, "attribute")))

    def _attribute(self, name: str, attribute: dict[Any, Any], at: tuple[str | int, ...]) -> dict[str, str]:
        allowed = {
            "drain": ("waittime",),
            "reboot": ("waittime", "unCordon"),
            "taint": ("key", "value", "effect"),
        }.get(name, ())
        read: dict[str, str] = {}
        for key, value in attribute.items():
            where = (*at, key)
            if key == "waittime" and name not in ("drain", "reboot") and value == "":
                continue
            if key not in allowed:
                takes = f"takes {', '.join(allowed)}" if allowed else "takes no attribute"
                self._problem(where, f"{name} has no attribute {key!r}: it {takes}")
            elif not isinstance(value, str):
                self._problem(where, f"{key} must be a string: {_quoted(key, value)}")
            elif self._attribute_value(key, value, where):
                read[key] = value
        return read

    def _attribute_value(self, key: str, value: str, at: tuple[str | int, ...]) -> bool:
        if key == "waittime":
            try:
                waits.parse(value)
            except waits.WaitError as error:
                self._problem(at, str(error))
                return False
        elif key == "unCordon" and value not in ("true", "false"):
            self._problem(at, f'unCordon must be "true" or "false", not "{value}"')
            return False
        elif key == "effect" and value not in TAINT_EFFECTS:
            self._problem(at, f"unknown effect {value!r}: use one of {', '.join(TAINT_EFFECTS)}")
            return False
        elif key == "key" and not LABEL_KEY.fullmatch(value):
            self._problem(at, f"{value!r} is no taint key")
            return False
        elif key == "value" and not LABEL_VALUE.fullmatch(value.replace("<code>", "0")):
            self._problem(at, f"{value!r} is no taint value")
            return False
        return True

    def _preconditions(self, actions: tuple[Action, ...], rule: dict[Any, Any], at: tuple[str | int, ...]) -> None:
        names = {action.name for action in actions}
        for name, needed in (("reboot", "drain"), ("unCordon", "reboot")):
            if name in names and needed not in names:
                index = next(index for index, item in enumerate(rule["actions"]) if _name_of(item) == name)
                self._problem((*at, "actions", index, "name"), f"{name} needs {needed}: add {needed} before it")
        if "onDrainTimeout" in rule and "drain" not in names:
            self._problem((*at, "onDrainTimeout"), "onDrainTimeout needs the action drain")

    def _verify(self, value: object, at: tuple[str | int, ...]) -> tuple[bool, bool]:
        """Whether to verify, and whether a fresh agent report is part of it (invariant 38)."""
        if value is None:
            return False, True
        if isinstance(value, bool):
            return value, True
        if isinstance(value, dict):
            self._only(value, ("agent",), at)
            agent = value.get("agent", True)
            if isinstance(agent, bool):
                return True, agent
        self._problem(at, "verify is true, or a mapping: verify: {agent: false} when the node has no agent")
        return False, True

    def _escalate(self, value: object, at: tuple[str | int, ...]) -> str | None:
        if value is None or value is False:
            return None
        if value is True:
            return "a person must look at this node"
        if isinstance(value, str) and 0 < len(value) <= 500:
            return value
        self._problem(at, "escalate is true, or a sentence of at most 500 characters that says what to do")
        return None

    def _choice(
        self, rule: dict[Any, Any], key: str, allowed: tuple[str, ...], default: str, at: tuple[str | int, ...]
    ) -> str:
        value = rule.get(key, default)
        if value not in allowed:
            meant = _meant(value, allowed)
            self._problem((*at, key), f"unknown {key} {value!r}: use one of {', '.join(allowed)}{meant}")
            return default
        return str(value)

    def _only(self, mapping: dict[Any, Any], allowed: tuple[str, ...], at: tuple[str | int, ...]) -> None:
        for key in mapping:
            if key not in allowed:
                meant = _meant(key, allowed)
                self._problem((*at, key), f"unknown key {key!r}: known here are {', '.join(allowed)}{meant}")

    def _problem(self, path: tuple[str | int, ...], message: str) -> None:
        self.problems.append(Problem(path, message))


def _name_of(item: object) -> object:
    return item.get("name") if isinstance(item, dict) else None


def _quoted(key: str, value: object) -> str:
    """What to write instead of a value that YAML did not read as a string."""
    if key == "waittime":
        return f'write "{value}min"' if type(value) is int else 'write "20min" for example'
    return f'write "{str(value).lower()}"' if isinstance(value, bool | int | float) else "write it in quotes"


def _meant(word: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the known one that it resembles, if any."""
    spelled = {one.lower(): one for one in known}
    close = difflib.get_close_matches(str(word).lower(), spelled, n=1)
    return f" (did you mean {spelled[close[0]]}?)" if close else ""
