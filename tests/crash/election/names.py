"""The Lease of ``fleet.services.action_lease``, and times for an election that takes seconds.

The order of the times is the portal's: a holder stops before others may take its Lease, and a new one waits for longer.
"""

LEASE, NAMESPACE = "kcover-portal", "kcover-lease"
LEASE_SECONDS, ACT_SECONDS, GRACE_SECONDS, ROUND_SECONDS = 4, 2.5, 5.0, 0.5
