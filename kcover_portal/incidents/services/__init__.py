"""Writes of incidents: reports are taken in, faults stored, incidents closed."""

from kcover_portal.fleet.services.agent_reports import IncomingReport
from kcover_portal.incidents.services.closure import CloseRefused, close, close_by_hand
from kcover_portal.incidents.services.ingestion import ingest, prune
from kcover_portal.incidents.services.node_jobs import note_jobs
from kcover_portal.incidents.services.record_faults import (
    keep_fault,
    keep_storm,
    mark_decided,
    redecide_cluster,
    redecide_if_labels_changed,
    redecide_node,
)

__all__ = [
    "CloseRefused",
    "IncomingReport",
    "close",
    "close_by_hand",
    "ingest",
    "keep_fault",
    "keep_storm",
    "mark_decided",
    "note_jobs",
    "prune",
    "redecide_cluster",
    "redecide_if_labels_changed",
    "redecide_node",
]
