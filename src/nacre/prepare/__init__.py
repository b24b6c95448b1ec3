"""Preparation steps: functions that check, change or refuse a plan before its command runs.

A preparation step may read the file system, query git and call the host's URL resolvers, but it
changes nothing outside the plan.
"""
