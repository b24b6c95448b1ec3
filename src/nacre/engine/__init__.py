"""Running a plan, in any number at once. Knows no contract."""
