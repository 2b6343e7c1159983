"""The core: all rules of the portal, as pure functions of their arguments.

Belongs here: parsing of kernel-log lines, the Xid catalog, the wire format, durations, policy matching, decisions,
plans, marks, lifecycles. Never here: Django, I/O beyond reading the package's own data files, a clock (``now`` is an
argument).
"""
