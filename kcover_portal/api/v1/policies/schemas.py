"""Parsed policies as JSON."""

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from kcover.policy import document
from kcover.values import durations, masked_addresses
from kcover_portal.api.v1.masked_fields import MaskedTextField
from kcover_portal.api.v1.reason_fields import ReasonSerializer, SentenceField
from kcover_portal.policies.models import Revision


class ActionSerializer(serializers.Serializer[Any]):
    """An action; ``seconds`` is its wait time."""

    name = serializers.CharField()
    attribute = serializers.DictField(child=serializers.CharField())
    seconds = serializers.IntegerField(allow_null=True)


class SelectorSerializer(serializers.Serializer[Any]):
    """A node selector: any of the labels, or all of them."""

    operator = serializers.CharField()
    labels = serializers.DictField(child=serializers.CharField())


class MatchSerializer(serializers.Serializer[Any]):
    """The conditions of a rule besides error codes. ``seconds`` is the window for ``minCount`` occurrences."""

    sxid = serializers.ListField(child=serializers.CharField())
    checks = serializers.ListField(child=serializers.CharField())
    codes = serializers.DictField(child=serializers.ListField(child=serializers.CharField()))
    kinds = serializers.ListField(child=serializers.CharField())
    applicationFaults = serializers.BooleanField(help_text="false: kinds leave out application faults")
    minCount = serializers.IntegerField(allow_null=True)
    within = serializers.CharField(allow_blank=True)
    seconds = serializers.IntegerField(allow_null=True)


class AskedSerializer(serializers.Serializer[Any]):
    """A required approval; ``seconds`` null means the cluster's default."""

    approvers = serializers.IntegerField()
    expires = serializers.CharField(allow_blank=True)
    seconds = serializers.IntegerField(allow_null=True)


class RuleSerializer(serializers.Serializer[Any]):
    """A parsed rule. ``errorCode`` null: any fault of the node; ``nodeSelector`` null: any node."""

    priority = serializers.IntegerField()
    errorCode = serializers.ListField(child=serializers.CharField(), allow_null=True)
    nodeSelector = SelectorSerializer(allow_null=True)
    match = MatchSerializer(allow_null=True)
    actions = ActionSerializer(many=True)
    mode = serializers.CharField()
    budget = serializers.CharField(allow_null=True, help_text="a whole number or a percentage")
    cooldownSeconds = serializers.IntegerField(allow_null=True)
    approval = AskedSerializer(allow_null=True)
    onDrainTimeout = serializers.CharField(allow_null=True)
    verify = serializers.BooleanField()
    verifyAgent = serializers.BooleanField()
    escalate = serializers.CharField(allow_null=True)


class PairSerializer(serializers.Serializer[Any]):
    """The standbys that may replace some nodes."""

    originNode = serializers.DictField(child=serializers.CharField())
    targetNode = serializers.DictField(child=serializers.CharField())


class ParsedSerializer(serializers.Serializer[Any]):
    """A parsed policy. A RescuePolicy has ``rules``, a WarmStandbyPolicy ``matches``."""

    name = serializers.CharField()
    apiVersion = serializers.CharField()
    kind = serializers.CharField()
    rules = RuleSerializer(many=True)
    matches = PairSerializer(many=True)


class WarningSerializer(serializers.Serializer[Any]):
    """A warning about a valid text, with its position."""

    line = serializers.IntegerField()
    column = serializers.IntegerField()
    path = serializers.CharField()
    message = serializers.CharField()
    code = serializers.CharField(help_text="stable for programs")
    params = serializers.DictField()


class ValidSerializer(serializers.Serializer[Any]):
    """A text that can be applied."""

    valid = serializers.BooleanField()
    policies = ParsedSerializer(many=True)
    warnings = WarningSerializer(many=True)


class RevisionSerializer(serializers.ModelSerializer[Revision]):
    """An immutable revision of a policy. What may be a key in an address is masked in the text."""

    text = MaskedTextField()
    because = ReasonSerializer(source="why", read_only=True, allow_null=True)

    class Meta:
        model = Revision
        fields = ("number", "text", "author", "reason", "because", "at")


class PolicySerializer(serializers.ModelSerializer[Revision]):
    """A policy: the text of its revision, parsed. ``archived_at`` is when it was disabled.

    What may be a key in an address is masked; a text with a masked address cannot be published.
    """

    text = MaskedTextField()
    name = serializers.CharField(source="policy.name", read_only=True)
    kind = serializers.CharField(source="policy.kind", read_only=True)
    revision = serializers.IntegerField(source="number", read_only=True)
    created_at = serializers.DateTimeField(source="policy.created_at", read_only=True)
    archived_at = serializers.DateTimeField(source="policy.archived_at", read_only=True, allow_null=True)
    archived_by = serializers.CharField(source="policy.archived_by", read_only=True)
    archived_because = SentenceField(source="policy.archived_because")
    because = ReasonSerializer(source="why", read_only=True, allow_null=True)
    cluster = serializers.CharField(
        source="policy.cluster.name",
        read_only=True,
        default=None,
        allow_null=True,
        help_text="the cluster that keeps the policy as an object: it holds there only, and is read-only here",
    )
    rules = serializers.SerializerMethodField()
    matches = serializers.SerializerMethodField()

    class Meta:
        model = Revision
        fields: tuple[str, ...] = (
            "name",
            "kind",
            "cluster",
            "revision",
            "text",
            "rules",
            "matches",
            "author",
            "reason",
            "because",
            "at",
            "created_at",
            "archived_at",
            "archived_by",
            "archived_because",
        )

    @extend_schema_field(RuleSerializer(many=True))
    def get_rules(self, revision: Revision) -> list[dict[str, Any]]:
        """Returns the parsed rules; empty if this version cannot read the text."""
        return _part(revision, "rules")

    @extend_schema_field(PairSerializer(many=True))
    def get_matches(self, revision: Revision) -> list[dict[str, Any]]:
        """Returns the pairs of a WarmStandbyPolicy."""
        return _part(revision, "matches")


class SavedSerializer(PolicySerializer):
    """A published policy, with warnings about the whole text."""

    warnings = serializers.SerializerMethodField()

    class Meta(PolicySerializer.Meta):
        fields = (*PolicySerializer.Meta.fields, "warnings")

    @extend_schema_field(WarningSerializer(many=True))
    def get_warnings(self, revision: Revision) -> list[dict[str, Any]]:
        return [warning.to_json() for warning in self.context["warnings"]]


def _part(revision: Revision, key: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = parsed(document.read(revision.document))[key]
    except document.PolicyInvalid:
        return []
    return found


def parsed(policy: document.Policy | document.StandbyPolicy) -> dict[str, Any]:
    """Converts a policy to JSON, with wait times in seconds."""
    return {
        "name": policy.name,
        "apiVersion": policy.api_version,
        "kind": policy.kind,
        "rules": [] if isinstance(policy, document.StandbyPolicy) else [_rule(rule) for rule in policy.rules],
        "matches": [_pair(match) for match in policy.matches] if isinstance(policy, document.StandbyPolicy) else [],
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
                "attribute": masked_addresses.mask(action.attribute),
                "seconds": _seconds(durations.parse(action.attribute.get("waittime", ""))),
            }
            for action in rule.actions
        ],
        "mode": rule.mode,
        "budget": str(rule.budget) if rule.budget is not None else None,
        "cooldownSeconds": _seconds(rule.cooldown),
        "approval": _approval(rule.approval),
        "onDrainTimeout": rule.on_drain_timeout or None,
        "verify": rule.verify,
        "verifyAgent": rule.verify_agent,
        "validate": rule.validate,
        "probation": rule.probation,
        "escalate": rule.escalate,
    }


def _match(rule: document.Rule) -> dict[str, Any] | None:
    """Returns None if the rule matches by error codes only."""
    if not (rule.sxids or rule.checks or rule.phrases or rule.kinds or rule.minimum):
        return None
    minimum = rule.minimum
    return {
        "sxid": list(rule.sxids),
        "checks": list(rule.checks),
        "codes": {kind: list(codes) for kind, codes in rule.phrases.items()},
        "kinds": list(rule.kinds),
        "applicationFaults": rule.application_faults,
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
    """A changed value; null if it is absent."""

    path = serializers.CharField()
    old = serializers.JSONField(allow_null=True)
    new = serializers.JSONField(allow_null=True)


class DifferenceSerializer(serializers.Serializer[Any]):
    """The changes. ``to`` null: a text that is not applied. ``changes`` is empty if only comments differ."""

    to = serializers.IntegerField(allow_null=True)
    unified = serializers.CharField(allow_blank=True)
    changes = ChangeSerializer(many=True)

    def get_fields(self) -> dict[str, Any]:
        """Adds ``from``, which is a Python keyword and cannot be declared as an attribute."""
        return {"from": serializers.IntegerField(), **super().get_fields()}
