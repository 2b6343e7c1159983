"""Writes of incidents: reports are taken in, faults stored, incidents closed."""

from kcover_portal.fleet.services.agent_reports import IncomingReport as IncomingReport
from kcover_portal.incidents.services import doubtful_states
from kcover_portal.incidents.services.closure import (
    CloseRefused as CloseRefused,
    close as close,
    close_by_hand as close_by_hand,
)
from kcover_portal.incidents.services.decided_incidents import (
    DecidedIncident as DecidedIncident,
    mark_decided as mark_decided,
)
from kcover_portal.incidents.services.flapping_faults import close_ended as close_ended
from kcover_portal.incidents.services.gpu_suspicion import suspect_gpus as suspect_gpus
from kcover_portal.incidents.services.ingestion import ingest as ingest, prune as prune
from kcover_portal.incidents.services.node_jobs import note_jobs as note_jobs
from kcover_portal.incidents.services.portal_fault import PortalFault as PortalFault
from kcover_portal.incidents.services.record_faults import (
    keep_cluster_incident as keep_cluster_incident,
    keep_fault as keep_fault,
    keep_found as keep_found,
    keep_storm as keep_storm,
)
from kcover_portal.incidents.services.redecisions import (
    decided_with_other_labels as decided_with_other_labels,
    redecide_cluster as redecide_cluster,
    redecide_if_labels_changed as redecide_if_labels_changed,
    redecide_nodes as redecide_nodes,
)
from kcover_portal.incidents.services.source_fault import SourceFault as SourceFault
from kcover_portal.incidents.services.source_ingestion import (
    PassedCheck as PassedCheck,
    ingest_observed as ingest_observed,
    known_nodes as known_nodes,
    nodes_of_hosts as nodes_of_hosts,
)
from kcover_portal.incidents.services.timed_fault import LASTING as LASTING, STATES as STATES

settle_doubt = doubtful_states.settle
