"""Evidence: what a node knew about a fault before a reset or a reboot destroys it.

Belongs here: the format of a bundle and its limits, the offer of one, and the rules that remove secrets and user data.
Never here: how the parts are read, and where bundles are kept.
"""
