"""Public tables and image sets by name, read from a folder or downloaded once."""
