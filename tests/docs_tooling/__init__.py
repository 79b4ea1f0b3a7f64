"""Programs and libraries for the documentation. See README.md."""
