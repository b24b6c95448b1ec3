"""Capture of a run's output.

Memory keeps the part that a reply may show. A file keeps all of the output if the plan asks for it.
"""
