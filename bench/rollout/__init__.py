"""A new DaemonSet on thousands of nodes: its agents enrol at once, and reconnect after a restart of ``live``."""
