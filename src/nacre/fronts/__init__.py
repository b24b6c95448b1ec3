"""Fronts: each reads a call, asks a Tool, writes a reply."""
