"""Read access to the audit log, and verifications of its hash chains."""

from http import HTTPStatus
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from kcover.values import masked_addresses
from kcover_portal.anchors.models import Verification
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.ledger.filtersets import EntryFilter
from kcover_portal.ledger.models import Entry
from kcover_portal.lib import localization
from kcover_portal.shared_reads import audit


class EntrySerializer(serializers.ModelSerializer[Entry]):
    """An entry of the audit log. ``digest`` covers the entry and its predecessor, so that changes are detected.

    What may be a key in an address in ``data`` is masked; the digest covers the data as stored.
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


class Audit(base.ReadViewSet[Entry]):
    """Entries, newest first. Those of the installation require access to all clusters."""

    queryset = Entry.objects.all()
    serializer_class = EntrySerializer
    filterset_class = EntryFilter

    def get_queryset(self) -> QuerySet[Entry]:
        """Returns the entries that the caller may see."""
        if getattr(self, "swagger_fake_view", False):
            return Entry.objects.none()
        return audit.entries(principal(self.request))


class VerdictSerializer(serializers.Serializer[Any]):
    """A chain. ``cluster`` is empty for the installation; ``broken_at`` is a sequence number, null if it is intact."""

    cluster = serializers.CharField(allow_blank=True)
    entries = serializers.IntegerField()
    intact = serializers.BooleanField()
    broken_at = serializers.IntegerField(allow_null=True)
    because = serializers.CharField(allow_blank=True)


class VerificationSerializer(serializers.Serializer[Any]):
    """A verification and the verdicts so far."""

    id = serializers.IntegerField()
    state = serializers.ChoiceField(choices=Verification.State.values)
    progress = base.ProgressSerializer(help_text="in entries")
    chains = VerdictSerializer(many=True)


class Verifications(base.ActionView):
    """Begins a verification."""

    @extend_schema(operation_id="audit_verify", request=None, responses={202: VerificationSerializer})
    def post(self, request: Request) -> Response:
        """Begins to verify the hash chains that the caller sees, and returns the open verification if there is one.

        Workers carry it out. 429 while too many wait.
        """
        base.known_only(request)
        row = audit.begin_verification(principal(request), now=timezone.now())
        location = reverse("api:audit-verification", kwargs={"pk": row.pk}, request=request)
        return Response(_content(request, row), status=HTTPStatus.ACCEPTED, headers={"Location": location})


class OneVerification(base.ActionView):
    """A verification of the caller."""

    @extend_schema(operation_id="audit_verification_retrieve", responses={200: VerificationSerializer})
    def get(self, request: Request, pk: int) -> Response:
        """Returns the progress and the verdicts so far. They are kept for a day."""
        base.known_only(request)
        return Response(_content(request, get_object_or_404(audit.verifications(principal(request)), pk=pk)))


def _content(request: Request, row: Verification) -> dict[str, Any]:
    verdicts = audit.verdicts(principal(request), row)
    return {
        "id": row.pk,
        "state": row.state,
        "progress": {"done": row.done, "total": row.total},
        "chains": [{**one, "because": localization.stored(one["because"])} for one in verdicts],
    }
