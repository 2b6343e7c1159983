"""Policies over REST: RescuePolicies and the WarmStandbyPolicy, dry runs and differences."""

from kcover_portal.api.v1.policies.effective import Effective
from kcover_portal.api.v1.policies.packs import Install, OnePack, Packs
from kcover_portal.api.v1.policies.tries import CancelTry, OneTry, Try
from kcover_portal.api.v1.policies.views import (
    Policies,
    Revisions,
    StandbyPolicies,
    StandbyRevisions,
    Validate,
)
from kcover_portal.api.v1.policies.winners import Winners

__all__ = [
    "CancelTry",
    "Effective",
    "Install",
    "OnePack",
    "OneTry",
    "Packs",
    "Policies",
    "Revisions",
    "StandbyPolicies",
    "StandbyRevisions",
    "Try",
    "Validate",
    "Winners",
]
