"""Notification events: which of them a route selects, and what each means to a pager."""
