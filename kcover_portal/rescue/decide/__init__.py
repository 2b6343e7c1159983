"""Decides incidents: gathers the facts, asks the core or an external decider, stores the decision, opens the rescue."""
