"""The evidence of a rescue: what the node's agent collected before a reset or a reboot."""

from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from kcover import audit, reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.api import http_errors
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.evidence import queries
from kcover_portal.evidence.models import Bundle
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.models import Rescue
from kcover_portal.runtime.services import concurrency_limits

MEDIA_TYPE = "application/gzip"


class EvidenceSectionSerializer(serializers.Serializer[Any]):
    """A part of a bundle. ``status``: ``ok``, ``failed``, ``late`` or ``missing``, and ``note`` why."""

    name = serializers.CharField()
    status = serializers.CharField()
    seconds = serializers.FloatField()
    bytes = serializers.IntegerField()
    note = serializers.CharField(allow_blank=True)


class EvidenceSerializer(serializers.Serializer[Any]):
    """A bundle of a rescue. ``url``: the file, null unless it is stored."""

    n = serializers.IntegerField()
    state = serializers.ChoiceField(choices=Bundle.State.values)
    sha256 = serializers.CharField(allow_blank=True)
    size = serializers.IntegerField(help_text="in bytes")
    requested_at = serializers.DateTimeField()
    taken_at = serializers.DateTimeField(allow_null=True)
    kept_at = serializers.DateTimeField(allow_null=True)
    sections = EvidenceSectionSerializer(many=True)
    url = serializers.CharField(allow_null=True)


class EvidenceListSerializer(serializers.Serializer[Any]):
    """The bundles of a rescue."""

    results = EvidenceSerializer(many=True)


class EvidenceList(base.ActionView):
    """The bundles of a rescue."""

    @extend_schema(operation_id="rescues_evidence", responses=EvidenceListSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Returns the bundles that the rescue asked for: one for each round that ends in a reset or a reboot."""
        base.known_only(request)
        rescue = _rescue(request, pk)
        found = [_content(request, shown) for shown in queries.of_rescue(rescue.pk)]
        return Response(EvidenceListSerializer({"results": found}).data)


class EvidenceFile(base.ActionView):
    """A bundle as a file."""

    @extend_schema(operation_id="rescues_evidence_file", responses={(200, MEDIA_TYPE): OpenApiTypes.BINARY})
    def get(self, request: Request, pk: int, n: int) -> HttpResponse:
        """Returns the bundle as gzip. 404 if it is not stored: it did not arrive, or was deleted.

        Each download is in the audit log. A person or token can make ten a minute, exports included (429).
        """
        base.known_only(request)
        rescue = _rescue(request, pk)
        row = Bundle.objects.filter(rescue=rescue.pk, number=n, state=Bundle.State.KEPT).first()
        if row is None:
            raise http_errors.NotFound(reasons.of("no_evidence", rescue=str(pk), number=str(n)))
        headers = {
            "Content-Disposition": f'attachment; filename="rescue-{pk}-evidence-{n}.log.gz"',
            "ETag": f'"{row.sha256}"',
            "Cache-Control": "private, no-store",
            "X-Content-Type-Options": "nosniff",
        }
        if request.method == "HEAD":  # whoever asks for the size and the hash has downloaded nothing
            return HttpResponse(content_type=MEDIA_TYPE, headers={**headers, "Content-Length": str(row.size)})
        _note_download(request, rescue, row)
        return HttpResponse(b"".join(queries.content(row)), content_type=MEDIA_TYPE, headers=headers)


def _note_download(request: Request, rescue: Rescue, row: Bundle) -> None:
    """Raises Busy after too many downloads and exports within a minute."""
    who, now = principal(request), timezone.now()
    concurrency_limits.take(concurrency_limits.EXPORT_STARTS, accounts.place_key(who), now=now)
    act = audit.EvidenceRead(node=rescue.node.name, of_rescue=rescue.pk, number=row.number, sha256=row.sha256)
    ledger.record(rescue.cluster.name, act, actor=accounts.actor(who), now=now)


def _rescue(request: Request, pk: int) -> Rescue:
    visible = accounts.visible(principal(request), Rescue.objects.select_related("cluster", "node"))
    return get_object_or_404(visible, pk=pk)


def _content(request: Request, shown: queries.Shown) -> dict[str, Any]:
    row = shown.bundle
    kept = row.state == Bundle.State.KEPT
    url = reverse("api:rescue-evidence-file", kwargs={"pk": row.rescue, "n": row.number}, request=request)
    return {
        "n": row.number,
        "state": row.state,
        "sha256": row.sha256,
        "size": row.size,
        "requested_at": row.requested_at,
        "taken_at": row.taken_at,
        "kept_at": row.kept_at,
        "sections": shown.sections,
        "url": url if kept else None,
    }
