"""Small values and formats that several parts share."""
