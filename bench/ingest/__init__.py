"""Reports of a large fleet: how many a portal takes, at which price, how soon it answers, and what a crash loses."""
