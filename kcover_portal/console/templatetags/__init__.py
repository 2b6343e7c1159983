"""Template tags; a package because Django looks for one."""
