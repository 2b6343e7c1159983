"""Reading the ledger: timelines, the proof that nobody rewrote it, and what it alone says a rescue came to."""

from kcover_portal.ledger.queries.chain import Verdict, chains, digest, timeline, verify
from kcover_portal.ledger.queries.replaying import RescueState, StepState, replay

__all__ = ["RescueState", "StepState", "Verdict", "chains", "digest", "replay", "timeline", "verify"]
