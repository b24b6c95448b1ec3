"""The engine: runs any number of plans (prepared commands) at once.

The engine does not depend on the contracts (dialects of the tool).
"""
