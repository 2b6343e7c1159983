"""Checks on request: check runs, deep checks, the check pvc, and Autopilot's node labels.

Belongs here: requesting checks from agents, collecting their results, and their effect on a node's labels. Never here:
results that agents report by themselves (fleet), faults (incidents), or what is done about them (rescue).
"""
