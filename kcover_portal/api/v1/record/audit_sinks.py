"""Sinks of the audit stream. They require ``stream-audit`` everywhere, and a fresh second factor to change them."""

from django.utils import timezone
from rest_framework import serializers

from kcover_portal import encryption
from kcover_portal.api.v1.reason_fields import SentenceField
from kcover_portal.api.v1.settings_rows import SettingsViewSet, change_body, new_body
from kcover_portal.audit_stream import queries, services
from kcover_portal.audit_stream.models import Sink


class SinkSerializer(serializers.ModelSerializer[Sink]):
    """A sink. ``behind``: records that it has not received; ``lag_seconds``: the age of the oldest of them."""

    address = serializers.CharField(source="shown_address", read_only=True)
    signed = serializers.SerializerMethodField()
    receives = serializers.SerializerMethodField()
    options = serializers.DictField(child=serializers.CharField(), read_only=True)
    behind = serializers.SerializerMethodField()
    lag_seconds = serializers.SerializerMethodField()
    problem = SentenceField()

    class Meta:
        model = Sink
        fields = (
            *(
                "id",
                "name",
                "kind",
                "address",
                "signed",
                "receives",
                "options",
                "topics",
                "enabled",
                "created_by",
                "created_at",
            ),
            *("behind", "lag_seconds", "sent", "sent_at", "failures", "attempts", "due_at", "problem"),
        )

    def get_signed(self, row: Sink) -> bool:
        return encryption.is_set(row, "secret")

    def get_receives(self, row: Sink) -> bool:
        """Returns whether the portal takes signed messages for the sink."""
        return encryption.is_set(row, "incoming_key")

    def get_behind(self, row: Sink) -> int:
        return queries.lag(row, now=timezone.now()).records

    def get_lag_seconds(self, row: Sink) -> int:
        return int(queries.lag(row, now=timezone.now()).age.total_seconds())


class AuditSinks(SettingsViewSet[Sink]):
    """Sinks by name."""

    serializer_class = SinkSerializer
    resource = services.SINKS
    body_of_new = new_body(
        services.SINKS,
        "SinkBody",
        "A new sink. ``whole``: it also receives what happened before it was created.",
    )
    body_of_change = change_body(services.SINKS, "SinkPatch", "Settings to change, and the reason.")
    of_create = "Creates a sink. There is no idempotency key, because the secret must not be stored for comparison."
    of_delete = "Deletes a sink. What it has not received is not sent."
