"""Steps that check, change or refuse a plan before its command runs.

A step may read the file system, query git and call the host's URL resolvers. A step changes nothing
outside the plan.
"""
