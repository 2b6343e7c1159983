"""Sinks and delivery."""

from kcover_portal.audit_stream.services.delivery import deliver as deliver, sweep as sweep
from kcover_portal.audit_stream.services.refusals import drop as drop, send_again as send_again
from kcover_portal.audit_stream.services.sinks import SINKS as SINKS
