"""Analysis of runs for the reply to the model: hints, and output without progress lines."""
