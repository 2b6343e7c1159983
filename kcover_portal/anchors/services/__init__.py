"""Publishes signed heads, compares the database with anchors, and verifies chains in the background."""

from kcover_portal.anchors.services.publication import (
    INCIDENT_CODE as INCIDENT_CODE,
    KEY as KEY,
    VANISHED as VANISHED,
    VANISHED_FOR as VANISHED_FOR,
    compare as compare,
    publish as publish,
)
