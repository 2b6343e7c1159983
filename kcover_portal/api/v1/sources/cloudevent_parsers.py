"""Parsers of CloudEvents, which have media types of their own."""

from kcover.sources import cloudevents
from kcover_portal.api.body_parsers import StrictJsonParser


class StructuredParser(StrictJsonParser):
    """A CloudEvent in structured mode."""

    media_type = cloudevents.STRUCTURED


class BatchParser(StrictJsonParser):
    """CloudEvents in batch mode."""

    media_type = cloudevents.BATCH
