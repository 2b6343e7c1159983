"""The data of pages, read straight from the rows. Reads of thousands of nodes never create ORM objects."""
