"""An action as docs/recipes.md says to add one: ``spec`` is its module of the core, ``engine`` that of the engine."""
