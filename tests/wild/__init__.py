"""Models and clients as they are in the wild."""
