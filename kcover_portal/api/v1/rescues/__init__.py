"""Faults, decisions, rescues, approvals, and what bounds them."""
