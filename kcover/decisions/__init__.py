"""Which rule applies, what holds it back, what the votes come to. Pure: facts in, an answer with reasons out."""
