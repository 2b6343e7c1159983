"""Repairs and parts, and the doors of vendors, Jira and mail."""
