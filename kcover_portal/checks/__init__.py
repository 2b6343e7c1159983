"""Checks on request: check runs, deep checks, the check pvc, and Autopilot's node labels.

Belongs here: asking agents to run checks, collecting their results, and what follows from them for a node's labels.
Never here: results that agents report by themselves (fleet), faults (incidents), or what is done about them (rescue).
"""
