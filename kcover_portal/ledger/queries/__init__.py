"""Reads the ledger: timelines, verification and the replay of a rescue."""

from kcover_portal.ledger.queries.chain import (
    ChainCheck,
    Position,
    about,
    chains,
    content,
    content_digest,
    digest,
    heads,
    start,
    timeline,
    verify,
    verify_part,
)
from kcover_portal.ledger.queries.rescue_replay import RescueState, StepState, replay, replay_entries

__all__ = [
    "ChainCheck",
    "Position",
    "RescueState",
    "StepState",
    "about",
    "chains",
    "content",
    "content_digest",
    "digest",
    "heads",
    "replay",
    "replay_entries",
    "start",
    "timeline",
    "verify",
    "verify_part",
]
