"""Checks, validations, preflight and pair tests."""
