"""What several apps use and no app owns: calls to other systems, errors, the language of the reader."""
