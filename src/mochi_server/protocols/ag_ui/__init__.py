"""The AG-UI protocol."""
