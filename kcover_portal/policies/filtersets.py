"""Filters of policy revisions."""

import django_filters as filters
from django.utils.translation import gettext_lazy as _

from kcover_portal.ledger.filtersets import Period
from kcover_portal.policies.models import Revision


class RevisionFilter(Period):
    """Revisions by policy, author and time."""

    policy = filters.CharFilter(field_name="policy__name", label=_("Policy"))
    author = filters.CharFilter(field_name="author", lookup_expr="icontains", label=_("Author"))

    class Meta:
        model = Revision
        fields: tuple[str, ...] = ()
