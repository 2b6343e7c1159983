"""Sinks and delivery."""

from kcover_portal.audit_stream.services.delivery import deliver, sweep
from kcover_portal.audit_stream.services.refusals import drop, send_again
from kcover_portal.audit_stream.services.sinks import change_sink, delete_sink, make_sink

__all__ = ["change_sink", "delete_sink", "deliver", "drop", "make_sink", "send_again", "sweep"]
