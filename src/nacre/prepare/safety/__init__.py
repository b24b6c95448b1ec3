"""Safety rules against harmful commands: a guard against mistakes, not a sandbox.

A safety rule is a function that checks one command, or the whole analysis of a script. Each safety
rule has an id such as `disk.dd` and belongs to a pack, a named group of rules such as `disk`. A
safety rule sees the words that bash would pass to the program, so quoting, wrappers such as `sudo`
and substitutions hide nothing. Text that only mentions a command, such as `echo 'rm -rf /'`,
matches no safety rule.
"""
