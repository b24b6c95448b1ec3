"""Analysis of runs for the reply: hints, and output without progress lines."""
