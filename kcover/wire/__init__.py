"""The wire format between agent and portal, version 1: JSON in, values out.

Belongs here: the content of messages, their limits, ``decode`` and ``encode``. Never here: HTTP, compression, tokens,
or what a message is used for.

Decoding is strict, and errors name the path of the field. An invalid envelope rejects the whole report (EnvelopeError),
an invalid item only itself (Rejected). Unknown keys are ignored, so that fields can be added. Absent equals null.
"""

from kcover.wire.decode import decode as decode, decode_answer as decode_answer, decode_command as decode_command
from kcover.wire.encode import encode as encode, encode_answer as encode_answer, encode_command as encode_command
from kcover.wire.fields import (
    MAX_BYTES as MAX_BYTES,
    MAX_CHECKS as MAX_CHECKS,
    MAX_FAULTS as MAX_FAULTS,
    MAX_MESSAGE as MAX_MESSAGE,
    MAX_RECORDS as MAX_RECORDS,
    MAX_RESULTS as MAX_RESULTS,
    VERSION as VERSION,
    EnvelopeError as EnvelopeError,
    WireError as WireError,
)
from kcover.wire.messages import Answer as Answer, Decoded as Decoded, Rejected as Rejected, Report as Report
