"""Parsers of events, of which one that cannot be stored fails no other. CloudEvents have media types of their own."""

from kcover.sources import cloudevents
from kcover_portal.api.body_parsers import StrictJsonParser


class ItemsParser(StrictJsonParser):
    """JSON whose items are judged one by one."""

    leaves_surrogates = True


class StructuredParser(ItemsParser):
    """A CloudEvent in structured mode."""

    media_type = cloudevents.STRUCTURED


class BatchParser(ItemsParser):
    """CloudEvents in batch mode."""

    media_type = cloudevents.BATCH
