"""Bytes to text: cleaning, rendering, searching, secrets."""
