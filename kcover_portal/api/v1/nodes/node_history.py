"""The history of a node: what happened in the last 30 days, and the figures of its GPUs in the last three."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover.nodes import node_history
from kcover_portal.accounts import queries as accounts
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.fleet.models import Node
from kcover_portal.shared_reads import gpu_figures, node_history as histories


class HappeningSerializer(serializers.Serializer[node_history.Happening]):
    """One thing that happened. ``about`` and ``id`` name the record; the id of an ``entry`` is its sequence number."""

    at = serializers.DateTimeField()
    about = serializers.ChoiceField(["incident", "rescue", "entry", "validation", "repair"])
    id = serializers.IntegerField()
    code = serializers.CharField(help_text="the fault, the verb of the audit log, the profile, or the kind of the part")
    state = serializers.CharField(help_text='how it ended, or what it became; "" for an entry')
    by = serializers.CharField()
    rescue = serializers.IntegerField(allow_null=True)
    bad = serializers.BooleanField(help_text="a fault that stops its device, or something that failed")
    title_reason = ReasonSerializer(source="title", allow_null=True, help_text="of an entry of the audit log")


class MarkSerializer(serializers.Serializer[node_history.Mark]):
    """What happened in one day. ``named``: the newest of ``count``."""

    kind = serializers.ChoiceField([str(kind) for kind in node_history.Kind])
    day = serializers.IntegerField(help_text="0 begins at since; each day lasts 24 hours")
    count = serializers.IntegerField()
    named = HappeningSerializer(many=True)


class OutOfServiceSerializer(serializers.Serializer[node_history.Span]):
    """A time out of service. Gaps of less than an hour are left out."""

    why = serializers.ChoiceField([str(why) for why in node_history.Out])
    since = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)


class LaneSerializer(serializers.Serializer[histories.Lane]):
    """The node, or one of its GPUs."""

    gpu = serializers.CharField(source="gpu.uuid", default=None, allow_null=True, help_text="UUID; null: the node")
    index = serializers.IntegerField(source="gpu.index", default=None, allow_null=True)
    marks = MarkSerializer(many=True)
    out_of_service = OutOfServiceSerializer(source="spans", many=True)


class HistorySerializer(serializers.Serializer[histories.History]):
    """The lanes of a node. ``complete``: false if there were too many rows, and old ones are left out."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    complete = serializers.BooleanField()
    lanes = LaneSerializer(many=True)


class LineSerializer(serializers.Serializer[gpu_figures.Line]):
    """The values of one GPU."""

    gpu = serializers.CharField(source="gpu.uuid", help_text="UUID")
    index = serializers.IntegerField(source="gpu.index")
    values = serializers.ListField(
        child=serializers.FloatField(allow_null=True), help_text="one for each of times; null: nothing was reported"
    )


class FigureSerializer(serializers.Serializer[gpu_figures.Figure]):
    """One figure of the GPUs that reported it."""

    name = serializers.CharField(help_text="the name of the check")
    unit = serializers.CharField()
    gpus = LineSerializer(source="lines", many=True)


class FiguresSerializer(serializers.Serializer[gpu_figures.Figures]):
    """Figures over time."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    times = serializers.ListField(
        child=serializers.DateTimeField(), help_text="starts of the quarters of an hour in which a GPU reported"
    )
    figures = FigureSerializer(many=True)


class NodeHistory(base.ActionView):
    """The history of a node."""

    @extend_schema(operation_id="nodes_history", responses={200: HistorySerializer})
    def get(self, request: Request, cluster: str, name: str) -> Response:
        """Returns the last 30 days, as the page of the node shows them."""
        row = _node(request, cluster, name)
        return Response(HistorySerializer(histories.of(row, now=timezone.now())).data)


class NodeFigures(base.ActionView):
    """The figures of a node's GPUs over time."""

    @extend_schema(operation_id="nodes_figures", responses={200: FiguresSerializer})
    def get(self, request: Request, cluster: str, name: str) -> Response:
        """Returns what GPUs reported in the last three days: temperature, ECC errors, remapped rows, NVLink and PCIe.

        Agents report a figure once an hour, and at once when its check changes its status.
        """
        row = _node(request, cluster, name)
        return Response(FiguresSerializer(gpu_figures.of(row, now=timezone.now())).data)


def _node(request: Request, cluster: str, name: str) -> Node:
    """Raises Http404 for a node that the caller does not see, and an error for any parameter."""
    base.known_only(request)
    rows: Any = accounts.visible(principal(request), Node.objects.select_related("cluster"), node="")
    found: Node = get_object_or_404(rows, cluster__name=cluster, name=name)
    return found
