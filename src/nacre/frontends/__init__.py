"""Front ends: each reads calls, asks a Tool, writes replies."""
