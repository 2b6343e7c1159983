"""The setting of a cluster's topology, and the pool of its nodes by it."""

import re

from django.db.models import Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce, Left, NullIf

from kcover import reasons
from kcover.nodes.topology import DOMAINS
from kcover.values.quote import short_repr
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.lib.errors import FieldError

LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def checked(topology: object) -> dict[str, str]:
    """Returns the topology without empty keys. Raises FieldError for unknown domains and for what is no label key."""
    if not isinstance(topology, dict):
        raise FieldError("topology", reasons.of("topology_invalid", known=", ".join(DOMAINS)))
    for domain, key in topology.items():
        if domain not in DOMAINS:
            known = ", ".join(DOMAINS)
            raise FieldError("topology", reasons.of("domain_unknown", domain=short_repr(domain), known=known))
        if not isinstance(key, str) or (key and not LABEL_KEY.fullmatch(key)):
            raise FieldError("topology", reasons.of("topology_key_invalid", domain=domain, key=short_repr(key)))
    return {domain: topology[domain] for domain in DOMAINS if topology.get(domain)}


def derive(cluster: Cluster) -> int:
    """Sets the pool of all nodes of the cluster by its topology; returns how many changed. One statement."""
    found = [NullIf(KeyTextTransform(key, "labels"), Value("")) for key in queries.pool_labels(cluster)]
    width = Node._meta.get_field("pool").max_length or 0
    pool = Left(Coalesce(*found, Value(""), Value("")), width)
    return Node.objects.filter(cluster=cluster).exclude(pool=pool).update(pool=pool)
