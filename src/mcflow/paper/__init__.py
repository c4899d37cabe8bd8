"""The method of the MCFlow paper: Algorithms 1 and 2 on tables and flattened images."""
