"""AG-UI protocol."""
