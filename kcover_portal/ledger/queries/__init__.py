"""Reads the ledger: timelines, verification and the replay of a rescue."""

from kcover_portal.ledger.queries.chain import (
    Verdict,
    about,
    chains,
    content,
    content_digest,
    digest,
    heads,
    timeline,
    verify,
)
from kcover_portal.ledger.queries.rescue_replay import RescueState, StepState, replay

__all__ = [
    "RescueState",
    "StepState",
    "Verdict",
    "about",
    "chains",
    "content",
    "content_digest",
    "digest",
    "heads",
    "replay",
    "timeline",
    "verify",
]
