"""Tests of sessions, prewarmed shells and the user's set-up."""
