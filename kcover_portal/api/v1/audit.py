"""The ledger, to read."""

import django_filters as filters
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from kcover_portal.accounts import queries as accounts
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.ledger.models import Entry


class EntrySerializer(serializers.ModelSerializer[Entry]):
    """One act; ``digest`` covers it and the entry before, so that nobody can rewrite it unseen."""

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


class EntryFilter(filters.FilterSet):
    """Entries by who, what, where and when."""

    cluster = filters.CharFilter(field_name="cluster", label=_("Cluster"))
    node = filters.CharFilter(field_name="node", label=_("Node"))
    rescue = filters.NumberFilter(field_name="rescue", label=_("Rescue"))
    actor = filters.CharFilter(field_name="actor", label=_("Actor"))
    verb = filters.CharFilter(field_name="verb", label=_("Verb"))
    subject = filters.CharFilter(field_name="subject", label=_("Subject"))
    since = filters.IsoDateTimeFilter(field_name="at", lookup_expr="gte", label=_("Since"))
    until = filters.IsoDateTimeFilter(field_name="at", lookup_expr="lt", label=_("Until"))
    q = filters.CharFilter(method="search", label=_("Search"))

    class Meta:
        model = Entry
        fields: tuple[str, ...] = ()

    def search(self, rows: QuerySet[Entry], name: str, value: str) -> QuerySet[Entry]:
        """Entries whose actor, verb, subject or node contains the text."""
        return rows.filter(
            Q(actor__icontains=value)
            | Q(verb__icontains=value)
            | Q(subject__icontains=value)
            | Q(node__icontains=value)
        )


class Audit(base.Reads[Entry]):
    """Entries, newest first; those of the installation itself only for who sees every cluster."""

    queryset = Entry.objects.all()
    serializer_class = EntrySerializer
    filterset_class = EntryFilter

    def get_queryset(self) -> QuerySet[Entry]:
        """By the cluster's name: the ledger outlives the clusters that it speaks of."""
        rows = Entry.objects.all()
        if getattr(self, "swagger_fake_view", False):
            return rows.none()
        who = principal(self.request)
        return rows if accounts.sees_all(who) else rows.filter(cluster__in=accounts.clusters_of(who).values("name"))
