"""Writes of incidents: reports are taken in, faults stored, incidents closed."""

from kcover_portal.fleet.services.agent_reports import IncomingReport
from kcover_portal.incidents.services.closure import CloseRefused, close, close_by_hand
from kcover_portal.incidents.services.decided_incidents import Decided, mark_decided
from kcover_portal.incidents.services.ingestion import ingest, prune
from kcover_portal.incidents.services.node_jobs import note_jobs
from kcover_portal.incidents.services.portal_fault import PortalFault
from kcover_portal.incidents.services.record_faults import (
    decided_with_other_labels,
    keep_cluster_incident,
    keep_fault,
    keep_storm,
    redecide_cluster,
    redecide_if_labels_changed,
    redecide_nodes,
)

__all__ = [
    "CloseRefused",
    "Decided",
    "IncomingReport",
    "PortalFault",
    "close",
    "close_by_hand",
    "decided_with_other_labels",
    "ingest",
    "keep_cluster_incident",
    "keep_fault",
    "keep_storm",
    "mark_decided",
    "note_jobs",
    "prune",
    "redecide_cluster",
    "redecide_if_labels_changed",
    "redecide_nodes",
]
