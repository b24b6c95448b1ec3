"""Front end for programs that send RPC messages to nacre: JSON lines on stdin and stdout."""
