"""Writes of incidents: reports are taken in, faults stored, incidents closed."""

from kcover_portal.fleet.services.agent_reports import IncomingReport
from kcover_portal.incidents.services.closure import CloseRefused, close, close_by_hand
from kcover_portal.incidents.services.decided_incidents import DecidedIncident, mark_decided
from kcover_portal.incidents.services.doubtful_states import settle as settle_doubt
from kcover_portal.incidents.services.flapping_faults import close_ended
from kcover_portal.incidents.services.gpu_suspicion import suspect_gpus
from kcover_portal.incidents.services.ingestion import ingest, prune
from kcover_portal.incidents.services.node_jobs import note_jobs
from kcover_portal.incidents.services.portal_fault import PortalFault
from kcover_portal.incidents.services.record_faults import keep_cluster_incident, keep_fault, keep_found, keep_storm
from kcover_portal.incidents.services.redecisions import (
    decided_with_other_labels,
    redecide_cluster,
    redecide_if_labels_changed,
    redecide_nodes,
)
from kcover_portal.incidents.services.source_fault import SourceFault
from kcover_portal.incidents.services.source_ingestion import PassedCheck, ingest_observed, known_nodes, nodes_of_hosts
from kcover_portal.incidents.services.timed_fault import LASTING, STATES

__all__ = [
    "LASTING",
    "STATES",
    "CloseRefused",
    "DecidedIncident",
    "IncomingReport",
    "PassedCheck",
    "PortalFault",
    "SourceFault",
    "close",
    "close_by_hand",
    "close_ended",
    "decided_with_other_labels",
    "ingest",
    "ingest_observed",
    "keep_cluster_incident",
    "keep_fault",
    "keep_found",
    "keep_storm",
    "known_nodes",
    "mark_decided",
    "nodes_of_hosts",
    "note_jobs",
    "prune",
    "redecide_cluster",
    "redecide_if_labels_changed",
    "redecide_nodes",
    "settle_doubt",
    "suspect_gpus",
]
