"""The form beside the text: a second view of one rule of the same text. It changes only what differs in it."""

from collections.abc import Mapping
from typing import Any

from django.http import QueryDict

from kcover import reasons
from kcover_portal.console.forms import rules as forms
from kcover_portal.lib import localization
from kcover_portal.policies.services import rule_text

NEW = "new"


def fields(text: str) -> dict[str, Any]:
    """What shows the first rule of a text in the form."""
    return _shown(text, "")


def answer(sent: QueryDict) -> dict[str, Any]:
    """What shows the chosen rule, and with ``apply`` the text that the fields make. Never raises for an odd text."""
    text, chosen = sent.get("text", "").replace("\r\n", "\n"), sent.get("rule", "")
    if not sent.get("apply"):
        return _shown(text, chosen)
    form = forms.RuleFields(sent)
    try:
        changed, chosen = _applied(text, chosen, form)
    except rule_text.Unchangeable as error:
        return {**_shown(text, chosen), "rule": form, "refused": localization.say(error.reason)}
    return {**_shown(changed, chosen), "applied": changed != text, "unchanged": changed == text}


def _applied(text: str, chosen: str, form: forms.RuleFields) -> tuple[str, str]:
    """The changed text, and the rule that the form shows then. Raises Unchangeable."""
    present = rule_text.rules(text)
    if not form.is_valid():
        raise rule_text.Unchangeable(reasons.of("rule_text_choice"))
    if form.expires_without_approval:
        raise rule_text.Unchangeable(reasons.of("rule_text_expiry"))
    if chosen == NEW:
        if not present:
            raise rule_text.Unchangeable(reasons.of("rule_text_gone", rule=1))
        document = present[-1].document
        changed = rule_text.add(text, document, form.wanted({}))
        return changed, _key(rule_text.rules(changed)[-1])
    rule = _find(present, chosen)
    if rule is None:
        raise rule_text.Unchangeable(reasons.of("rule_text_gone", rule=len(present) + 1))
    wanted = form.wanted(rule.content)
    return rule_text.change(text, rule, wanted) if wanted else text, chosen


def _shown(text: str, chosen: str) -> dict[str, Any]:
    """The rules to choose from and the fields of the chosen one; of the first if that is gone."""
    try:
        present = rule_text.rules(text)
    except rule_text.Unchangeable as error:
        return {"text": text, "rules": [], "rule": None, "refused": localization.say(error.reason)}
    rule = _find(present, chosen) or (present[0] if present and chosen != NEW else None)
    content: Mapping[str, Any] = forms.read(rule.content) if rule is not None else forms.FIRST
    return {
        "text": text,
        "rules": [(_key(one), one.name) for one in present],
        "chosen": _key(rule) if rule is not None else NEW,
        "rule": forms.RuleFields(initial=dict(content)) if present else None,
    }


def _find(present: list[rule_text.RuleText], chosen: str) -> rule_text.RuleText | None:
    return next((rule for rule in present if _key(rule) == chosen), None)


def _key(rule: rule_text.RuleText) -> str:
    """Identifies a rule of the text by its place, because names may be missing or wrong."""
    return f"{rule.document}.{rule.index}"
