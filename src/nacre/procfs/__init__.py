"""Reading /proc: processes, ports, blocked readers."""
