"""Rules about commands that do harm: a seat belt, not a wall.

A rule is a function over a command (or over the whole reading), with an id, in a pack. It sees
words as bash would pass them, so quoting, wrappers and substitutions do not hide anything from it,
and text that only mentions a command is left alone.
"""
