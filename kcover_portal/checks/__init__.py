"""Checks on request: check runs, validations, deep checks, the check pvc, and Autopilot's node labels.

Belongs here: requesting checks from agents, collecting their results, what the results prove of a node, and their
effect on its labels. Never here: results that agents report by themselves (fleet), faults (incidents), or what is done
about them (rescue).
"""
