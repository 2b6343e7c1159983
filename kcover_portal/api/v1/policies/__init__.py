"""Policies over REST: RescuePolicies and the WarmStandbyPolicy, dry runs and differences."""

from kcover_portal.api.v1.policies.effective import Effective as Effective
from kcover_portal.api.v1.policies.packs import Install as Install, OnePack as OnePack, Packs as Packs
from kcover_portal.api.v1.policies.tries import CancelTry as CancelTry, OneTry as OneTry, Try as Try
from kcover_portal.api.v1.policies.views import (
    Policies as Policies,
    Revisions as Revisions,
    StandbyPolicies as StandbyPolicies,
    StandbyRevisions as StandbyRevisions,
    Validate as Validate,
)
from kcover_portal.api.v1.policies.winners import Winners as Winners
