"""The view, its serializers, the urls, and the WSGI application in threads."""

import json
import os
from typing import Any

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.ingest.naive.settings")
_pages = get_wsgi_application()

from a2wsgi import WSGIMiddleware  # noqa: E402
from django.urls import path  # noqa: E402
from rest_framework import serializers  # noqa: E402
from rest_framework.authentication import TokenAuthentication  # noqa: E402
from rest_framework.permissions import IsAuthenticated  # noqa: E402
from rest_framework.request import Request  # noqa: E402
from rest_framework.response import Response  # noqa: E402
from rest_framework.views import APIView  # noqa: E402

from bench.ingest.naive.models import Report  # noqa: E402


class GpuSerializer(serializers.Serializer[Any]):
    index = serializers.IntegerField(min_value=0, max_value=1023)
    uuid = serializers.CharField(max_length=96)
    pci = serializers.RegexField(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(\.[0-7])?$")
    model = serializers.CharField(max_length=128)
    serial = serializers.CharField(max_length=64)


class InventorySerializer(serializers.Serializer[Any]):
    driver = serializers.CharField(max_length=64)
    kernel = serializers.CharField(max_length=128)
    gpus = GpuSerializer(many=True)


class CheckSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=64)
    device = serializers.CharField(max_length=128)
    status = serializers.ChoiceField(choices=["pass", "warn", "fail", "error", "skipped"])
    value = serializers.FloatField(allow_null=True)
    unit = serializers.CharField(max_length=32, allow_blank=True)
    message = serializers.CharField(max_length=4096, allow_blank=True)


class FaultSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=["xid", "sxid", "check", "agent", "preflight", "pod", "other"])
    code = serializers.CharField(max_length=64)
    message = serializers.CharField(max_length=4096, allow_blank=True)


class ReportSerializer(serializers.Serializer[Any]):
    version = serializers.IntegerField(min_value=1, max_value=1)
    node = serializers.RegexField(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)
    boot_id = serializers.CharField(max_length=64)
    batch_id = serializers.UUIDField()
    agent = serializers.CharField(max_length=64)
    sent_at = serializers.DateTimeField()
    inventory = InventorySerializer(required=False)
    faults = FaultSerializer(many=True)
    checks = CheckSerializer(many=True)


class ReportView(APIView):
    authentication_classes = (TokenAuthentication,)
    permission_classes = (IsAuthenticated,)

    def post(self, request: Request) -> Response:
        serializer = ReportSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        report = serializer.validated_data
        body = json.loads(json.dumps(serializer.data))
        Report.objects.create(node=report["node"], batch_id=report["batch_id"], body=body)
        return Response({"accepted": len(report["faults"]) + len(report["checks"])}, status=202)


urlpatterns = [path("reports", ReportView.as_view())]

application = WSGIMiddleware(_pages, workers=8)  # type: ignore[arg-type]
