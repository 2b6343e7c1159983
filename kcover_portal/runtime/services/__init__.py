"""Writes of the rows that the portal's processes share."""
