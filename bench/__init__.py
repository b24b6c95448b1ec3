"""What nacre promises about speed, measured beside its limits in one run."""
