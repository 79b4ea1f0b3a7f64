"""One question each, no HTTP."""
