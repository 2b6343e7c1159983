"""Checks of nodes: what Autopilot and iperf need, and which versions are in use."""
