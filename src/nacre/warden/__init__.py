"""The engine as a daemon behind a private socket, for runs that outlive their caller.

`protocol` has the frames, `framed_socket` sends and receives them. `server`, `server_connection`
and `hosted_run` are the daemon; `client_connection` and `client_request` are the calling side;
`endpoint` is where both meet (lock, socket, start); `stdio_bridge` carries the frames over stdin
and stdout.
"""
