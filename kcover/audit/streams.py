"""Sinks of the audit stream, and reads that leave the portal: exports, and addresses with their keys."""

from collections.abc import Mapping
from typing import Any

from kcover.audit.base import Act
from kcover.audit.fleet import Change
from kcover.reasons import Reason


class SinkAct(Act, subject="audit sink {sink}"):
    """An act on a sink of the audit stream."""

    sink: str


class SinkCreated(SinkAct, verb="audit_sink.created"):
    """A sink was created. ``settings``: those that are no secret. ``whole``: it gets the whole history."""

    kind: str
    settings: Mapping[str, Any]
    whole: bool = False


class SinkChanged(SinkAct, verb="audit_sink.changed"):
    """Settings of a sink were changed."""

    changed: Mapping[str, Change]
    reason: str = ""


class SinkDeleted(SinkAct, verb="audit_sink.deleted"):
    """A sink was deleted. ``behind``: how many records it had not received."""

    kind: str
    behind: int = 0
    reason: str = ""


class RefusedRecordAct(SinkAct):
    """An act on a record that a sink's receiver refused for good. ``record``: its number in the topic."""

    repair: int
    record: int


class RecordSetAside(RefusedRecordAct, verb="audit_sink.record_set_aside"):
    """The record was set aside: the sink goes on without it."""

    because: Reason


class RecordSentAgain(RefusedRecordAct, verb="audit_sink.record_sent"):
    """A person had the record sent again, and the receiver took it."""


class RecordDropped(RefusedRecordAct, verb="audit_sink.record_dropped"):
    """A person dropped the record."""

    reason: str = ""


class ListExported(Act, verb="list.exported", subject="list {name}"):
    """A person began to export a list. ``query``: the filters as in the address; ``shape``: the file format."""

    name: str
    shape: str
    query: str = ""


class SecretRead(Act, verb="secret.read"):
    """A person saw a policy's text with the keys in its addresses, in the editor."""

    policy: str
    standby: bool = False

    @property
    def subject(self) -> str:
        return f"standby policy {self.policy}" if self.standby else f"policy {self.policy}"


class EvidenceRead(Act, verb="evidence.read", subject="node {node}"):
    """A person or program downloaded a bundle of evidence. ``number``: its number within the rescue.

    It is no entry of the rescue, whose proof would otherwise reach from its opening to the last download.
    """

    node: str
    of_rescue: int
    number: int
    sha256: str
