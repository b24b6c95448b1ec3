"""The engine: runs any number of plans at once. The engine does not know the contracts."""
