"""Safety rules against harmful commands: a guard against mistakes, not a sandbox.

A rule is a function over one command or over the whole analysis of a script. Each rule has an id
and belongs to a pack. A rule sees words as bash would pass them, so quoting, wrappers and
substitutions hide nothing. Text that only mentions a command does not match a rule.
"""
