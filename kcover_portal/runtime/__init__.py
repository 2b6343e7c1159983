"""State of the portal's own processes: heartbeats, leases, counters, remembered hashes; settings of the installation.

Belongs here: small shared rows that several processes need and that do not describe a cluster. Never here: clusters and
nodes (fleet), or what a process does with its lease.
"""
