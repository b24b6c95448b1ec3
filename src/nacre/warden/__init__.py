"""The warden: nacre's daemon, which listens on a private socket and runs commands that outlive
their caller.

The module `protocol` defines the frames of the socket protocol, and `framed_socket` sends and
receives them. The modules `server`, `server_connection` and `hosted_run` implement the daemon. The
modules `client_connection` and `client_request` implement the client side of the socket protocol.
The module `endpoint`, which daemon and clients share, defines the lock file and the socket names,
and starts the daemon. The module `stdio_bridge` copies frames between the warden's socket and the
stdin and stdout of `nacre warden --stdio`.
"""
