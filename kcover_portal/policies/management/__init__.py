"""Management of the app from the shell."""
