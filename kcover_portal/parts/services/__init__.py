"""Writes of parts: what a changed inventory says, who has a part that two nodes report, and reviews by people."""

from kcover_portal.parts.services.claims import settle_claims as settle_claims
from kcover_portal.parts.services.placements import record_changed as record_changed
from kcover_portal.parts.services.reviews import ReviewRefused as ReviewRefused, review as review
