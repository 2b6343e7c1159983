"""Policies as JSON: what the portal understood of them."""

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from kcover import durations
from kcover.policy import document
from kcover_portal.policies.models import Revision


class ActionSerializer(serializers.Serializer[Any]):
    """An action; ``seconds`` is its wait time."""

    name = serializers.CharField()
    attribute = serializers.DictField(child=serializers.CharField())
    seconds = serializers.IntegerField(allow_null=True)


class SelectorSerializer(serializers.Serializer[Any]):
    """Which nodes: any one of the labels, or all of them."""

    operator = serializers.CharField()
    labels = serializers.DictField(child=serializers.CharField())


class MatchSerializer(serializers.Serializer[Any]):
    """What a rule means beyond error codes; ``seconds`` is the window in which ``minCount`` occurrences are wanted."""

    sxid = serializers.ListField(child=serializers.CharField())
    checks = serializers.ListField(child=serializers.CharField())
    kinds = serializers.ListField(child=serializers.CharField())
    minCount = serializers.IntegerField(allow_null=True)
    within = serializers.CharField(allow_blank=True)
    seconds = serializers.IntegerField(allow_null=True)


class AskedSerializer(serializers.Serializer[Any]):
    """That people must say yes first; ``seconds`` null: the cluster's default."""

    approvers = serializers.IntegerField()
    expires = serializers.CharField(allow_blank=True)
    seconds = serializers.IntegerField(allow_null=True)


class RuleSerializer(serializers.Serializer[Any]):
    """A rule as the portal understood it. ``errorCode`` null: any fault of the node; ``nodeSelector`` null: any."""

    priority = serializers.IntegerField()
    errorCode = serializers.ListField(child=serializers.CharField(), allow_null=True)
    nodeSelector = SelectorSerializer(allow_null=True)
    match = MatchSerializer(allow_null=True)
    actions = ActionSerializer(many=True)
    mode = serializers.CharField()
    budget = serializers.CharField(allow_null=True, help_text="a whole number or a percentage")
    cooldownSeconds = serializers.IntegerField(allow_null=True)
    approval = AskedSerializer(allow_null=True)
    onDrainTimeout = serializers.CharField()
    verify = serializers.BooleanField()
    verifyAgent = serializers.BooleanField()
    escalate = serializers.CharField(allow_null=True)


class PairSerializer(serializers.Serializer[Any]):
    """Which standbys may replace which nodes."""

    originNode = serializers.DictField(child=serializers.CharField())
    targetNode = serializers.DictField(child=serializers.CharField())


class ParsedSerializer(serializers.Serializer[Any]):
    """A policy as the portal understood it: a RescuePolicy has ``rules``, a WarmStandbyPolicy ``matches``."""

    name = serializers.CharField()
    apiVersion = serializers.CharField()
    kind = serializers.CharField()
    rules = RuleSerializer(many=True)
    matches = PairSerializer(many=True)


class WarningSerializer(serializers.Serializer[Any]):
    """Something valid that may surprise, with its place in the text."""

    line = serializers.IntegerField()
    column = serializers.IntegerField()
    path = serializers.CharField()
    message = serializers.CharField()


class ValidSerializer(serializers.Serializer[Any]):
    """A text that can be applied."""

    valid = serializers.BooleanField()
    policies = ParsedSerializer(many=True)
    warnings = WarningSerializer(many=True)


class RevisionSerializer(serializers.ModelSerializer[Revision]):
    """One text of a policy; it never changes."""

    class Meta:
        model = Revision
        fields = ("number", "text", "author", "reason", "at")


class PolicySerializer(serializers.ModelSerializer[Revision]):
    """A policy: its revision's text, and what was read from it. ``archived_at``: it is out of force since then."""

    name = serializers.CharField(source="policy.name", read_only=True)
    kind = serializers.CharField(source="policy.kind", read_only=True)
    revision = serializers.IntegerField(source="number", read_only=True)
    created_at = serializers.DateTimeField(source="policy.created_at", read_only=True)
    archived_at = serializers.DateTimeField(source="policy.archived_at", read_only=True, allow_null=True)
    archived_by = serializers.CharField(source="policy.archived_by", read_only=True)
    archived_because = serializers.CharField(source="policy.archived_because", read_only=True)
    rules = serializers.SerializerMethodField()
    matches = serializers.SerializerMethodField()

    class Meta:
        model = Revision
        fields: tuple[str, ...] = (
            "name",
            "kind",
            "revision",
            "text",
            "rules",
            "matches",
            "author",
            "reason",
            "at",
            "created_at",
            "archived_at",
            "archived_by",
            "archived_because",
        )

    @extend_schema_field(RuleSerializer(many=True))
    def get_rules(self, revision: Revision) -> list[dict[str, Any]]:
        """The rules as understood; none where this version cannot read the text."""
        return _part(revision, "rules")

    @extend_schema_field(PairSerializer(many=True))
    def get_matches(self, revision: Revision) -> list[dict[str, Any]]:
        """A WarmStandbyPolicy's pairs."""
        return _part(revision, "matches")


class SavedSerializer(PolicySerializer):
    """A policy as it was put in force, with what may surprise about the whole text that it came in."""

    warnings = serializers.SerializerMethodField()

    class Meta(PolicySerializer.Meta):
        fields = (*PolicySerializer.Meta.fields, "warnings")

    @extend_schema_field(WarningSerializer(many=True))
    def get_warnings(self, revision: Revision) -> list[dict[str, Any]]:
        """As the view gives them."""
        return [asdict(warning) for warning in self.context["warnings"]]


def _part(revision: Revision, key: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = parsed(document.read(revision.document))[key]
    except document.PolicyInvalid:
        return []
    return found


def parsed(policy: document.Policy | document.StandbyPolicy) -> dict[str, Any]:
    """A policy as JSON, with the seconds of each wait time."""
    return {
        "name": policy.name,
        "apiVersion": policy.api_version,
        "kind": policy.kind,
        "rules": [] if isinstance(policy, document.StandbyPolicy) else [_rule(rule) for rule in policy.rules],
        "matches": [_pair(one) for one in policy.matches] if isinstance(policy, document.StandbyPolicy) else [],
    }


def _pair(match: document.StandbyRule) -> dict[str, Any]:
    return {"originNode": dict(match.origin), "targetNode": dict(match.target)}


def _rule(rule: document.Rule) -> dict[str, Any]:
    labels = rule.labels
    return {
        "priority": rule.priority,
        "errorCode": list(rule.codes) if rule.codes is not None else None,
        "nodeSelector": {"operator": rule.operator, "labels": dict(labels)} if labels is not None else None,
        "match": _match(rule),
        "actions": [
            {
                "name": action.name,
                "attribute": dict(action.attribute),
                "seconds": _seconds(durations.parse(action.attribute.get("waittime", ""))),
            }
            for action in rule.actions
        ],
        "mode": rule.mode,
        "budget": str(rule.budget) if rule.budget is not None else None,
        "cooldownSeconds": _seconds(rule.cooldown),
        "approval": _approval(rule.approval),
        "onDrainTimeout": rule.on_drain_timeout,
        "verify": rule.verify,
        "verifyAgent": rule.verify_agent,
        "escalate": rule.escalate,
    }


def _match(rule: document.Rule) -> dict[str, Any] | None:
    """Null where the rule says nothing beyond error codes."""
    if not (rule.sxids or rule.checks or rule.kinds or rule.minimum):
        return None
    minimum = rule.minimum
    return {
        "sxid": list(rule.sxids),
        "checks": list(rule.checks),
        "kinds": list(rule.kinds),
        "minCount": minimum.count if minimum else None,
        "within": durations.render(minimum.within) if minimum else "",
        "seconds": _seconds(minimum.within) if minimum else None,
    }


def _approval(approval: document.Approval | None) -> dict[str, Any] | None:
    if approval is None:
        return None
    expires = approval.expires
    return {"approvers": approval.approvers, "expires": durations.render(expires), "seconds": _seconds(expires)}


def _seconds(wait: timedelta | None) -> int | None:
    return None if wait is None else int(wait.total_seconds())


class ChangeSerializer(serializers.Serializer[Any]):
    """One value that is not the same; null where it is not there."""

    path = serializers.CharField()
    old = serializers.JSONField(allow_null=True)
    new = serializers.JSONField(allow_null=True)


class DifferenceSerializer(serializers.Serializer[Any]):
    """What changed; ``to`` null: a text that is not applied. ``changes`` is empty where only comments differ."""

    to = serializers.IntegerField(allow_null=True)
    unified = serializers.CharField(allow_blank=True)
    changes = ChangeSerializer(many=True)

    def get_fields(self) -> dict[str, Any]:
        """``from`` is a word of Python's, so it cannot be declared as the others."""
        return {"from": serializers.IntegerField(), **super().get_fields()}
