"""Writes of sources: their rows, what they send, and tests of them."""

from kcover_portal.sources.services import checkpoint_lookup, held_passes, worker_trial
from kcover_portal.sources.services.condition_feed import ConditionFeed as ConditionFeed
from kcover_portal.sources.services.event_feed import EventFeed as EventFeed
from kcover_portal.sources.services.intake import IntakeResult as IntakeResult, prune as prune, take as take
from kcover_portal.sources.services.pod_feed import PodFeed as PodFeed
from kcover_portal.sources.services.pull_schedule import pull as pull, sweep as sweep
from kcover_portal.sources.services.push import receive as receive
from kcover_portal.sources.services.source_settings import (
    SOURCES as SOURCES,
    make_watched_sources as make_watched_sources,
    note_error as note_error,
)
from kcover_portal.sources.services.trial import Trial as Trial, try_source as try_source
from kcover_portal.sources.services.worker_trial import try_here_or_by_worker as try_here_or_by_worker

look_up_checkpoints = checkpoint_lookup.look_up
apply_held_passes = held_passes.apply
answer_test = worker_trial.answer
