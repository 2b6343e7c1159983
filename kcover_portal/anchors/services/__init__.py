"""Publishes signed heads, compares the database with anchors, and verifies chains in the background."""

from kcover_portal.anchors.services.publication import (
    INCIDENT_CODE,
    KEY,
    VANISHED,
    VANISHED_FOR,
    compare,
    publish,
)

__all__ = ["INCIDENT_CODE", "KEY", "VANISHED", "VANISHED_FOR", "compare", "publish"]
