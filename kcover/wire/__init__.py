"""The wire format between agent and portal, version 1: JSON in, values out.

Belongs here: the content of messages, their limits, ``decode`` and ``encode``. Never here: HTTP, compression, tokens,
or what a message is used for.

Decoding is strict, and errors name the path of the field. An invalid envelope rejects the whole report (EnvelopeError),
an invalid item only itself (Rejected). Unknown keys are ignored, so that fields can be added. Absent equals null.
"""

from kcover.wire.decode import decode, decode_answer, decode_command
from kcover.wire.encode import encode, encode_answer, encode_command
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
    "Rejected",
    "Report",
    "WireError",
    "decode",
    "decode_answer",
    "decode_command",
    "encode",
    "encode_answer",
    "encode_command",
]
