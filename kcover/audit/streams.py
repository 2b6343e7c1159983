"""Sinks of the audit stream, and reads that leave the portal: exports, and addresses with their keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kcover.audit.base import Act, register
from kcover.audit.fleet import Change
from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkAct(Act):
    """An act on a sink of the audit stream."""

    sink: str

    @property
    def subject(self) -> str:
        """The sink."""
        return f"audit sink {self.sink}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SinkCreated(SinkAct):
    """A sink was created. ``settings``: those that are no secret. ``whole``: it gets the whole history."""

    VERB: ClassVar[str] = "audit_sink.created"

    kind: str
    settings: Mapping[str, Any]
    whole: bool = False


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SinkChanged(SinkAct):
    """Settings of a sink were changed."""

    VERB: ClassVar[str] = "audit_sink.changed"

    changed: Mapping[str, Change]
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SinkDeleted(SinkAct):
    """A sink was deleted. ``behind``: how many records it had not received."""

    VERB: ClassVar[str] = "audit_sink.deleted"

    kind: str
    behind: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecordAct(SinkAct):
    """An act on a record that a sink's receiver refused for good. ``record``: its number in the topic."""

    repair: int
    record: int


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSetAside(RefusedRecordAct):
    """The record was set aside: the sink goes on without it."""

    VERB: ClassVar[str] = "audit_sink.record_set_aside"

    because: Reason


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSentAgain(RefusedRecordAct):
    """A person had the record sent again, and the receiver took it."""

    VERB: ClassVar[str] = "audit_sink.record_sent"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDropped(RefusedRecordAct):
    """A person dropped the record."""

    VERB: ClassVar[str] = "audit_sink.record_dropped"

    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ListExported(Act):
    """A person began to export a list. ``query``: the filters as in the address; ``shape``: the file format."""

    VERB: ClassVar[str] = "list.exported"

    name: str
    shape: str
    query: str = ""

    @property
    def subject(self) -> str:
        """The list."""
        return f"list {self.name}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRead(Act):
    """A person saw a policy's text with the keys in its addresses, in the editor."""

    VERB: ClassVar[str] = "secret.read"

    policy: str
    standby: bool = False

    @property
    def subject(self) -> str:
        """The policy."""
        return f"standby policy {self.policy}" if self.standby else f"policy {self.policy}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRead(Act):
    """A person or program downloaded a bundle of evidence. ``number``: its number within the rescue.

    It is no entry of the rescue, whose proof would otherwise reach from its opening to the last download.
    """

    VERB: ClassVar[str] = "evidence.read"

    node: str
    of_rescue: int
    number: int
    sha256: str

    @property
    def subject(self) -> str:
        """The node."""
        return f"node {self.node}"
