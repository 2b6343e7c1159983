"""Evidence: bundles that agents collect before a reset or a reboot, kept by their hash, bounded by size and age.

Belongs here: the request, the upload, and which bundles are deleted. Never here: when a rescue asks for one or waits
for it (``rescue.step.evidence``).
"""
