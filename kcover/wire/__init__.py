"""The wire format between agent and portal, version 1: JSON in, values out.

Belongs here: what a message holds, its limits, reading it (``reading``) and writing it (``writing``). Never here: HTTP,
compression, tokens, or what a message is good for.

Reading is strict and says what is wrong where: a wrong envelope voids the report (EnvelopeError), a wrong item only
itself (Rejected). Keys that are not known are ignored, so that fields can be added. Absent and null mean the same.
"""

from kcover.wire.alike import Likeness, likeness
from kcover.wire.fields import (
    MAX_BYTES,
    MAX_CHECKS,
    MAX_FAULTS,
    MAX_MESSAGE,
    MAX_RECORDS,
    MAX_RESULTS,
    VERSION,
    EnvelopeError,
    WireError,
)
from kcover.wire.messages import Answer, Decoded, Rejected, Report
from kcover.wire.reading import decode, decode_answer, decode_command
from kcover.wire.writing import encode, encode_answer, encode_command

__all__ = [
    "MAX_BYTES",
    "MAX_CHECKS",
    "MAX_FAULTS",
    "MAX_MESSAGE",
    "MAX_RECORDS",
    "MAX_RESULTS",
    "VERSION",
    "Answer",
    "Decoded",
    "EnvelopeError",
    "Likeness",
    "Rejected",
    "Report",
    "WireError",
    "decode",
    "decode_answer",
    "decode_command",
    "encode",
    "encode_answer",
    "encode_command",
    "likeness",
]
