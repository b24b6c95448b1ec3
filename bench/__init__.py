"""Benchmarks: each compares a measured speed of nacre with its promised limit."""
