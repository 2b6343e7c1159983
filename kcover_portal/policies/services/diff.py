"""Compares two texts of a policy, by lines and by meaning."""

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kcover import reasons
from kcover.policy import document
from kcover.values import masked_addresses
from kcover_portal.policies import queries
from kcover_portal.policies.models import Revision
from kcover_portal.policies.services import yaml_reader
from kcover_portal.policies.services.revisions import NotFound

ALIGNED = ("rules", "matches")  # lists that are compared entry by entry; any other list is one value


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A changed value. ``old`` is None if it was added, ``new`` is None if it was removed."""

    path: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class Difference:
    """``lines`` is a unified diff without line ends. ``changes`` compares values, not comments or the order of keys.

    What may be a key in an address is masked in both.
    """

    lines: tuple[str, ...]
    changes: tuple[PolicyChange, ...]


def compare(
    old: tuple[str, Mapping[str, Any]], new: tuple[str, Mapping[str, Any]], *, names: tuple[str, str] = ("old", "new")
) -> Difference:
    """Compares two pairs of text and document; ``names`` are the file names of the unified diff."""
    lines = difflib.unified_diff(old[0].splitlines(), new[0].splitlines(), *names, lineterm="")
    changes = _changes(_meaning(old[1]), _meaning(new[1]), ())
    return Difference(
        tuple(map(masked_addresses.mask_text, lines)),
        tuple(
            PolicyChange(change.path, masked_addresses.mask(change.old), masked_addresses.mask(change.new))
            for change in changes
        ),
    )


def two_revisions(
    name: str, old: int, new: int | None = None, *, kind: str = queries.RESCUE
) -> tuple[Revision, Revision]:
    """Returns two revisions of a policy by number; ``new`` None is the active one. Raises NotFound."""
    rows = Revision.objects.filter(policy__kind=kind, policy__name=name).select_related("policy")
    found = {row.number: row for row in rows}
    if not found:
        raise NotFound(reasons.of("policy_unknown", policy=name))
    live = next(iter(found.values())).policy.revision
    if new is None and not live:
        raise NotFound(reasons.of("policy_not_active", policy=name))
    for number in (old, live if new is None else new):
        if number not in found:
            raise NotFound(reasons.of("revision_unknown", policy=name, revision=number))
    return found[old], found[live if new is None else new]


def compare_revisions(old: Revision, new: Revision) -> Difference:
    """Compares two revisions, of one policy or of two."""
    names = tuple(f"{row.policy.name} revision {row.number}" for row in (old, new))
    return compare((old.text, old.document), (new.text, new.document), names=(names[0], names[1]))


def _meaning(content: Mapping[str, Any]) -> Any:
    """Returns the document without defaults, or as written if this version cannot read it."""
    try:
        return document.render(document.read(content))
    except document.PolicyInvalid:
        return content


def _changes(old: Any, new: Any, path: yaml_reader.Path) -> Iterator[PolicyChange]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in (*old, *(key for key in new if key not in old)):
            yield from _changes(old.get(key), new.get(key), (*path, key))
    elif isinstance(old, list) and isinstance(new, list) and path and path[-1] in ALIGNED:
        yield from _entries(old, new, path)
    else:
        yield PolicyChange(yaml_reader.spell(path), old, new)


def _entries(old: list[Any], new: list[Any], path: yaml_reader.Path) -> Iterator[PolicyChange]:
    """Compares lists. Unchanged entries are matched even if they moved; the others are compared by position."""
    before, after = ([json.dumps(entry, sort_keys=True) for entry in side] for side in (old, new))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for operation, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if operation == "equal":
            continue
        both = min(old_to - old_from, new_to - new_from)
        for index in range(both):
            yield from _changes(old[old_from + index], new[new_from + index], (*path, new_from + index))
        for index in range(old_from + both, old_to):
            yield PolicyChange(yaml_reader.spell((*path, index)), old[index], None)
        for index in range(new_from + both, new_to):
            yield PolicyChange(yaml_reader.spell((*path, index)), None, new[index])
