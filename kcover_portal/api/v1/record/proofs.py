"""The proof of a rescue, which anybody can verify with ``tools/verify_proof.py``."""

from http import HTTPStatus

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.values import masked_addresses
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.api import http_errors
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.ledger import signatures
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import proof

RETRY_AFTER = 60.0  # seconds until an operator may have created the signing key


class RescueProofSerializer(serializers.Serializer[object]):
    """A proof. ``signature`` is base64 of Ed25519 over the canonical JSON of ``proof``."""

    proof = serializers.DictField()
    key_id = serializers.CharField()
    signature = serializers.CharField()


class Proof(base.ActionView):
    """The signed proof of a rescue."""

    @extend_schema(operation_id="rescues_proof", responses=RescueProofSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Returns the proof as a file. The proof of an open rescue states what was done so far.

        It states the rules as they are. If an address in them has a part that may be a key, the proof requires the
        right to change policies (403).
        """
        base.known_only(request)
        seen = Rescue.objects.filter(cluster__in=accounts.clusters_of(principal(request)))
        rescue = get_object_or_404(seen.select_related("cluster", "node", "decision"), pk=pk)
        try:
            document = proof.signed(rescue)
        except proof.NoEntries as error:
            raise http_errors.NotFound(reasons.of("proof_without_entries", rescue=str(pk))) from error
        except signatures.SigningKeyUnusable as error:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            raise http_errors.RetryAfter(error.reason, status=status, retry_after=RETRY_AFTER) from error
        if masked_addresses.contains_key(document) and not accounts.may(principal(request), Verb.WRITE_POLICIES, None):
            raise http_errors.Forbidden(reasons.of("proof_with_key"))
        name = f'attachment; filename="rescue-{pk}-proof.json"'
        return Response(document, headers={"Content-Disposition": name, "Cache-Control": "no-store"})
