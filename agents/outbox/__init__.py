"""Reports on their way to the portal: building them, keeping them on disk, and deciding when to send them again.

Belongs here: everything between "a fault was found" and "the portal acknowledged it". Never here: HTTP, or where a
fault comes from.
"""
