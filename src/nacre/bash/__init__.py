"""Static analysis of bash: finds the commands that a script would run, without running them."""
