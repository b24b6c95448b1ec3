"""The warden: the engine as a daemon behind a private socket, for runs that outlive their caller.

`protocol` defines the frames; `framed_socket` sends and receives them. `server`,
`server_connection` and `hosted_run` are the daemon. `client_connection` and `client_request` are
the client side. `endpoint` is shared by both sides: lock file, socket names, start of the daemon.
`stdio_bridge` carries the frames over stdin and stdout.
"""
