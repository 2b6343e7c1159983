"""Read access to the audit log."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from kcover import masked_addresses
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.ledger.filtersets import EntryFilter
from kcover_portal.ledger.models import Entry
from kcover_portal.views import audit


class EntrySerializer(serializers.ModelSerializer[Entry]):
    """An entry of the audit log. ``digest`` covers the entry and its predecessor, so that changes are detected.

    Queries of addresses in ``data`` are masked; the digest covers the data as stored.
    """

    class Meta:
        model = Entry
        fields = (
            "id",
            "cluster",
            "sequence",
            "at",
            "actor",
            "verb",
            "subject",
            "node",
            "rescue",
            "data",
            "previous",
            "digest",
        )

    def to_representation(self, instance: Entry) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(instance)
        return {**shown, "data": masked_addresses.mask(shown["data"])}


class Audit(base.Reads[Entry]):
    """Entries, newest first. Those of the installation require access to all clusters."""

    queryset = Entry.objects.all()
    serializer_class = EntrySerializer
    filterset_class = EntryFilter

    def get_queryset(self) -> QuerySet[Entry]:
        """Returns the entries that the caller may see."""
        if getattr(self, "swagger_fake_view", False):
            return Entry.objects.none()
        return audit.entries(principal(self.request))
