"""Notification events: their selection by routes, and their effect on pagers."""
