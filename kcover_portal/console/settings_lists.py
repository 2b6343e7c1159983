"""The export of the rows that people set, made from the declaration of their kind. It has no secret."""

from typing import Any

import django_filters as filters
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from kcover.values import masked_addresses
from kcover_portal import encryption
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.console.list_query import Listing, own_columns
from kcover_portal.fleet.filtersets import Flag
from kcover_portal.settings_rows import Resource


class SettingsFilter(filters.FilterSet):
    """Rows that are switched on or off."""

    enabled = Flag(field_name="enabled", label=_("Enabled"))


def listing(name: str, resource: Resource[Any]) -> Listing:
    """The list of a kind of rows, for those who may see them. ``name``: in the address of the export."""
    secrets = {secret.name for secret in encryption.fields_of(resource.model)}
    fixed = {"id": "id", "name": "name", **({"kind": "kind"} if resource.kinds else {})}
    place = {"cluster": "cluster__name"} if resource.has_cluster else {}
    shown = [column.field for column in resource.columns if column.field not in secrets]

    def seen(user: User) -> QuerySet[Any]:
        if resource.has_cluster:
            return accounts.visible(user, resource.rows(), "cluster", None)
        return resource.rows() if accounts.may(user, Verb(resource.verb), None) else resource.rows().none()

    columns = {**fixed, **place, **own_columns(*shown, "created_by", "created_at")}
    kept = SettingsFilter if "enabled" in shown else filters.FilterSet
    return Listing(name, kept, seen, columns, convert=dict.fromkeys(shown, masked_addresses.mask))
