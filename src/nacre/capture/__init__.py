"""Capture of the output of a run (one command).

Memory keeps the part of the output that a reply may show, and a file keeps all of the output if the
plan of the run asks for it.
"""
