"""Other systems that watch the same machines: stand-ins for Loki, gpud, Prometheus and NVSentinel's exporter.

Belongs here: their HTTP interfaces, as far as a portal uses them. Never here: what a fault means.
"""
