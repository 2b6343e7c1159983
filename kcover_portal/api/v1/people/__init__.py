"""People: accounts, roles, tokens, views, and messages to them."""
