"""A `nacre.Tool` for the agent SDKs: one module each."""
