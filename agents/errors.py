"""What ends an agent before it has begun."""


class ConfigError(ValueError):
    """A setting that cannot be used: its name, and what is accepted."""


class Occupied(Exception):
    """Another process holds what this one needs. It may let go: one that is stuck in the driver does so late."""
