"""Read access to the audit log."""

from django.db.models import QuerySet
from rest_framework import serializers

from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.ledger.filtersets import EntryFilter
from kcover_portal.ledger.models import Entry
from kcover_portal.views import audit


class EntrySerializer(serializers.ModelSerializer[Entry]):
    """An entry of the audit log. ``digest`` covers the entry and its predecessor, so that changes are detected."""

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
