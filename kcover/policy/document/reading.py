"""The door: one parsed document in, a policy or all its mistakes out."""

import re

from kcover.policy.document import rules, standby
from kcover.policy.document.notes import Notes, meant
from kcover.policy.document.values import (
    KCOVER,
    KSYUN,
    RESCUE,
    STANDBY,
    Policy,
    PolicyInvalid,
    StandbyPolicy,
)
from kcover.quoting import shown

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def read(document: object) -> Policy | StandbyPolicy:
    """Reads one parsed document; raises PolicyInvalid with every problem found."""
    own = isinstance(document, dict) and document.get("apiVersion") == KCOVER
    notes = Notes(own=own)
    policy = _read(document, notes)
    if notes.problems or policy is None:
        raise PolicyInvalid(notes.problems)
    return policy


def _read(document: object, notes: Notes) -> Policy | StandbyPolicy | None:
    if not isinstance(document, dict):
        notes.problem((), "a policy is a mapping with apiVersion, kind, metadata and spec")
        return None
    notes.only(document, ("apiVersion", "kind", "metadata", "spec"), ())
    version, kind = document.get("apiVersion"), document.get("kind")
    if version not in (KSYUN, KCOVER):
        notes.problem(("apiVersion",), f"unknown apiVersion {shown(version)}: write {KSYUN} or {KCOVER}")
    if kind not in (RESCUE, STANDBY):
        known = (RESCUE, STANDBY)
        notes.problem(("kind",), f"unknown kind {shown(kind)}: write {' or '.join(known)}{meant(kind, known)}")
    name = _name(document.get("metadata"), notes)
    if kind == STANDBY:
        return standby.read(document, name, notes)
    return rules.read(document, name, notes)


def _name(metadata: object, notes: Notes) -> str:
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        message = "a policy needs a name of lower-case letters, digits, '-' and '.', at most 253"
        notes.problem(("metadata", "name"), message)
    return str(name)
