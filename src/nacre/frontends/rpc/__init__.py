"""JSON lines on stdin and stdout."""
