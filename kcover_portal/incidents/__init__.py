"""What went wrong: raw events, and the incidents they add up to.

Belongs here: keeping a report, deduplication, opening and closing incidents. Never here: what is done about one.
"""
