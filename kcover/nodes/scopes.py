"""A scope: some nodes of one cluster, by name, by labels, by pool, or by a rack, leaf switch or NVLink domain.

Maintenance windows, check runs, validations and bulk acts name their nodes by a scope. A scope has one kind of
selection. A scope without a selection is the whole cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kcover import reasons
from kcover.nodes import topology
from kcover.values import kube_names
from kcover.values.quote import short_repr, short_text

KINDS: Final = ("nodes", "labels", "pools", "domains")
DOMAINS: Final = ("rack", "leaf", "nvlink")  # a pool is a kind of its own
MAX_NODES: Final = 5_000
MAX_VALUES: Final = 200  # pools, or values of a domain
MAX_SELECTORS: Final = 16
MAX_SHOWN: Final = 3  # names in a sentence
_MAX_CHARACTERS: Final = 253  # of the name of a node


class ScopeError(reasons.ExplainedError):
    """The scope is invalid. ``field``: the key that is wrong, "" for the scope as a whole."""

    def __init__(self, field: str, reason: reasons.Reason) -> None:
        super().__init__(reason)
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """At most one of ``nodes``, ``labels``, ``pools`` and ``domain`` is set.

    ``labels``: key and value, None for any value; a node has to match all of them. ``values``: of the domain.
    """

    nodes: tuple[str, ...] = ()
    labels: tuple[tuple[str, str | None], ...] = ()
    pools: tuple[str, ...] = ()
    domain: str = ""
    values: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """One of ``KINDS``; "" for the whole cluster."""
        given = zip(KINDS, (self.nodes, self.labels, self.pools, self.domain), strict=True)
        return next((kind for kind, value in given if value), "")

    def covers(self, *, pool: str, labels: Mapping[str, str], setting: Mapping[str, str], name: str = "") -> bool:
        """Returns whether a node is inside the scope. ``setting``: the topology of its cluster.

        ``name``: needed for a scope that names nodes.
        """
        match self.kind:
            case "nodes":
                return name in self.nodes
            case "labels":
                return all(key in labels and value in (None, labels[key]) for key, value in self.labels)
            case "pools":
                return pool in self.pools
            case "domains":
                return topology.value_of(labels, topology.label_keys(setting, self.domain)) in self.values
        return True

    @property
    def selectors(self) -> tuple[str, ...]:
        """The labels as ``key=value``, or ``key`` for any value."""
        return tuple(key if value is None else f"{key}={value}" for key, value in self.labels)

    @property
    def names(self) -> tuple[str, ...]:
        """The node names, label selectors, pools or domain values that the scope lists."""
        return self.nodes or self.selectors or self.pools or self.values

    @property
    def shown(self) -> tuple[str, str]:
        """What is selected, for people: node, label, pool or the domain; and the first names."""
        names = self.names
        kind = {"nodes": "node", "labels": "label", "pools": "pool", "domains": self.domain}.get(self.kind, "")
        return kind, ", ".join((*names[:MAX_SHOWN], "…") if len(names) > MAX_SHOWN else names)

    def shown_for(self, *, name: str, pool: str) -> tuple[str, str]:
        """``shown``, for people who may see only this node or its pool: of nodes and pools no other is named."""
        if name in self.nodes:
            return "node", name
        return ("pool", pool) if pool in self.pools else self.shown

    def shown_as_group(self, *, pool: str, labels: Mapping[str, str], setting: Mapping[str, str]) -> tuple[str, str]:
        """``shown``, for people who may see only a node in it: of several pools, racks or switches only the node's."""
        kind, name = self.shown
        if self.domain:
            name = topology.value_of(labels, topology.label_keys(setting, self.domain))
        elif self.pools:
            name = pool
        return kind, f"{name}, …" if max(len(self.pools), len(self.values)) > 1 else name

    def to_json(self) -> dict[str, Any]:
        """The JSON that ``parse`` reads; {} for the whole cluster."""
        match self.kind:
            case "nodes":
                return {"nodes": list(self.nodes)}
            case "labels":
                return {"labels": list(self.selectors)}
            case "pools":
                return {"pools": list(self.pools)}
            case "domains":
                return {"domains": {self.domain: list(self.values)}}
        return {}


def parse(document: Mapping[str, Any]) -> Scope:
    """Reads the keys of ``KINDS``; other keys are ignored, and null is as good as absent. Raises ScopeError.

    An empty selection is an error, because it must never mean the whole cluster.
    """
    given = [kind for kind in KINDS if document.get(kind) is not None]
    if len(given) > 1:
        raise ScopeError(given[1], reasons.of("scope_one_kind", known=", ".join(KINDS)))
    if not given:
        return Scope()
    [kind] = given
    value = document[kind]
    match kind:
        case "nodes":
            return Scope(nodes=_names(value, field=kind, most=MAX_NODES))
        case "pools":
            return Scope(pools=_names(value, field=kind, most=MAX_VALUES))
        case "labels":
            return Scope(labels=_labels(value))
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in DOMAINS:
        raise ScopeError(kind, reasons.of("scope_one_domain", known=", ".join(DOMAINS)))
    [(domain, values)] = value.items()
    return Scope(domain=domain, values=_names(values, field=kind, most=MAX_VALUES))


def _names(value: object, *, field: str, most: int) -> tuple[str, ...]:
    """The names in their order, each once."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise ScopeError(field, reasons.of("scope_empty"))
    if len(value) > most:
        raise ScopeError(field, reasons.of("scope_too_long", most=most))
    for name in value:
        if not isinstance(name, str) or not name or len(name) > _MAX_CHARACTERS or not name.isprintable():
            raise ScopeError(field, reasons.of("scope_name_invalid", name=short_repr(name)))
    return tuple(dict.fromkeys(value))


def _labels(value: object) -> tuple[tuple[str, str | None], ...]:
    """A map from keys to values, or selectors: a list of them, or a text with commas."""
    pairs: list[tuple[Any, Any]]
    if isinstance(value, Mapping):
        pairs = list(value.items())
    else:
        texts = value.split(",") if isinstance(value, str) else value if isinstance(value, Sequence) else ()
        pairs = [_pair(text) for text in texts if not isinstance(text, str) or text.strip()]
    if not pairs:
        raise ScopeError("labels", reasons.of("scope_empty"))
    if len(pairs) > MAX_SELECTORS:
        raise ScopeError("labels", reasons.of("scope_too_long", most=MAX_SELECTORS))
    for key, wanted in pairs:
        good = isinstance(key, str) and kube_names.LABEL_KEY.fullmatch(key)
        if not good or not (wanted is None or (isinstance(wanted, str) and kube_names.LABEL_VALUE.fullmatch(wanted))):
            written = f"{short_text(key)}={short_text(wanted)}" if wanted is not None else short_text(key)
            raise ScopeError("labels", reasons.of("label_selector_invalid", selector=written))
    return tuple(dict.fromkeys((key, wanted) for key, wanted in pairs))


def _pair(text: object) -> tuple[Any, Any]:
    key, equals, value = text.strip().partition("=") if isinstance(text, str) else (text, "", "")
    return key, value if equals else None
