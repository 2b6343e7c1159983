"""Writes of sources: their rows, what they send, and tests of them."""

from kcover_portal.sources.services.checkpoint_lookup import look_up as look_up_checkpoints
from kcover_portal.sources.services.condition_feed import ConditionFeed
from kcover_portal.sources.services.event_feed import EventFeed
from kcover_portal.sources.services.held_passes import apply as apply_held_passes
from kcover_portal.sources.services.intake import IntakeResult, prune, take
from kcover_portal.sources.services.pod_feed import PodFeed
from kcover_portal.sources.services.pull_schedule import pull, sweep
from kcover_portal.sources.services.push import receive
from kcover_portal.sources.services.source_settings import (
    change_source,
    delete_source,
    make_source,
    make_watched_sources,
    note_error,
)
from kcover_portal.sources.services.trial import Trial, try_source
from kcover_portal.sources.services.worker_trial import answer as answer_test
from kcover_portal.sources.services.worker_trial import try_here_or_by_worker

__all__ = [
    "ConditionFeed",
    "EventFeed",
    "IntakeResult",
    "PodFeed",
    "Trial",
    "answer_test",
    "apply_held_passes",
    "change_source",
    "delete_source",
    "look_up_checkpoints",
    "make_source",
    "make_watched_sources",
    "note_error",
    "prune",
    "pull",
    "receive",
    "sweep",
    "take",
    "try_here_or_by_worker",
    "try_source",
]
