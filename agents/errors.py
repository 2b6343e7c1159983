"""Errors that keep the agent from starting."""


class ConfigError(ValueError):
    """A setting is invalid. The message names it and says what to write instead."""


class AlreadyRunning(Exception):
    """Another process holds the spool. It may release it late: it may be stuck in the driver."""
