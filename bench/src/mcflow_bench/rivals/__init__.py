"""Imputers that mcflow is compared with."""
