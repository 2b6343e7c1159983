"""Policies over REST: RescuePolicies and the WarmStandbyPolicy, dry runs and differences."""

from kcover_portal.api.v1.policies.dry_run import Effective, Try
from kcover_portal.api.v1.policies.views import Policies, Revisions, StandbyPolicies, StandbyRevisions, Validate

__all__ = ["Effective", "Policies", "Revisions", "StandbyPolicies", "StandbyRevisions", "Try", "Validate"]
