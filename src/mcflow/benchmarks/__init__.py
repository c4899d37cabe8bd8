"""Benchmarks that anyone can run, stop and resume."""
