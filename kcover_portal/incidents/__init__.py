"""Faults that were reported, and the incidents that they form.

Belongs here: storing reports, deduplication, opening and closing incidents. Never here: what is done about an incident.
"""
