"""The public keys of the portal's signatures."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover_portal.api.v1 import base
from kcover_portal.ledger import signatures


class PublicKeySerializer(serializers.Serializer[object]):
    """A public key; ``id`` is in every signature that the key made."""

    id = serializers.CharField()
    pem = serializers.CharField()


class PublicKeysSerializer(serializers.Serializer[object]):
    """Every public key, oldest first. ``current`` is null if the portal cannot sign."""

    current = serializers.CharField(allow_null=True)
    keys = PublicKeySerializer(many=True)


class SigningKeys(base.ActionView):
    """The public keys that verify signed heads of the audit log, and proofs."""

    @extend_schema(operation_id="ledger_keys", responses=PublicKeysSerializer)
    def get(self, request: Request) -> Response:
        """Lists the public keys. Compare their ids with those that your operators gave you."""
        base.known_only(request)
        try:
            current = signatures.current_key_id()
        except signatures.SigningKeyUnusable:
            current = None
        keys = [{"id": key_id, "pem": pem} for key_id, pem in signatures.public_keys().items()]
        return Response({"current": current, "keys": keys})
