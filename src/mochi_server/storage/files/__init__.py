"""Sessions as JSON files in one directory."""
