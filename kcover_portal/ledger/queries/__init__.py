"""Reads the ledger: timelines, verification and the replay of a rescue."""

from kcover_portal.ledger.queries.chain import (
    ChainCheck as ChainCheck,
    Position as Position,
    about as about,
    chains as chains,
    content as content,
    digest as digest,
    heads as heads,
    link as link,
    named as named,
    start as start,
    timeline as timeline,
    verify as verify,
    verify_part as verify_part,
)
from kcover_portal.ledger.queries.rescue_replay import (
    RescueState as RescueState,
    StepState as StepState,
    replay as replay,
    replay_entries as replay_entries,
)
