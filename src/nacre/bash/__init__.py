"""Static analysis of bash: the commands that a script would run. Runs nothing."""
