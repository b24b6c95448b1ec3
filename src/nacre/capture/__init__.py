"""Keeping output: in memory what a reply may show, on disk all of it when asked."""
