"""The engine behind a socket, for runs that outlive their caller.

`frames` is what is said, `server` is the process that runs things, `client` is whoever asks it to,
`door` is where they meet, `bridge` carries the same frames over stdin and stdout.
"""
