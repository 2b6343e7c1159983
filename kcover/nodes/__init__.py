"""What is on a node, and how it is: marks, stages, places, health."""
