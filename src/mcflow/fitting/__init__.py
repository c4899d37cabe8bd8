"""Training infrastructure shared by all algorithms."""
