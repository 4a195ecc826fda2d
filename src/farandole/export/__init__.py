"""Files: what other programs read, and what we read back."""
