"""Programs that run in Jobs on nodes. Nothing of the portal imports them, and they import nothing of it."""
