"""Frozen values: what is planned, asked, answered and refused. Imports nothing of nacre's."""
