"""The labels that say in which rack, leaf switch, NVLink domain or pool nodes are, read in the query of the nodes."""

from collections.abc import Sequence

from django.db.models import Q, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from kcover.nodes import topology
from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet.models import Node


class DomainLabels:
    """The labels of one domain, which each cluster may name by a key of its own. Costs one query."""

    def __init__(self, scope: Scope, domain: str) -> None:
        self._keys_of = {
            pk: topology.label_keys(setting, domain) for pk, setting in scope.clusters().values_list("pk", "topology")
        }
        keys = dict.fromkeys(key for own in self._keys_of.values() for key in own)
        self._columns = {f"label_{number}": key for number, key in enumerate(keys)}
        self.names = tuple(self._columns)

    def read(self, rows: QuerySet[Node]) -> QuerySet[Node]:
        """The nodes with the columns ``names``: the values of the labels."""
        return rows.annotate(
            **{name: Cast(KeyTextTransform(key, "labels"), TextField()) for name, key in self._columns.items()}
        )

    def having(self, text: str) -> Q:
        """The condition that one of the columns contains the text."""
        wanted = Q(pk__in=())
        for name in self.names:
            wanted |= Q(**{f"{name}__icontains": text})
        return wanted

    def of(self, cluster: int, values: Sequence[str | None]) -> tuple[str, str] | None:
        """Key and value of the label that counts in the cluster, by the values of the columns; None without one."""
        labels = dict(zip(self._columns.values(), values, strict=True))
        return next(((key, value) for key in self._keys_of.get(cluster, ()) if (value := labels[key])), None)
