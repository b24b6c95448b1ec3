"""Looking back at a run: hints, and output without progress lines."""
