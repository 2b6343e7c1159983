"""What pages need to know, read straight from the rows: never ORM objects where thousands of nodes are meant."""
