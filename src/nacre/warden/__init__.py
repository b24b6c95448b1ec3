"""The engine behind a socket, for runs that outlive their caller.

`frames` is what is said, through a `stream`; `server` is the process that runs things; `line` and
`remote` are of whoever asks it to; `door` is where they meet; `bridge` carries the same frames over
stdin and stdout.
"""
