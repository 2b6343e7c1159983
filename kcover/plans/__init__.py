"""A plan and the life of the rescue that follows it."""
