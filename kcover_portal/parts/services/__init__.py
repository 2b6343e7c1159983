"""Writes of parts: what a changed inventory says, who has a part that two nodes report, and reviews by people."""

from kcover_portal.parts.services.claims import settle_claims
from kcover_portal.parts.services.placements import record_changed
from kcover_portal.parts.services.reviews import ReviewRefused, review

__all__ = ["ReviewRefused", "record_changed", "review", "settle_claims"]
