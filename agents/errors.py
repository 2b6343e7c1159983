"""What ends an agent before it has begun."""


class ConfigError(ValueError):
    """A setting that cannot be used: its name, and what is accepted."""
