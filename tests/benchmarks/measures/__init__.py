"""One file for each thing that is measured: ``add_arguments`` says what can be adjusted, ``measure`` gives the rows."""

Row = dict[str, str | float]
"""A line of a table: column names, which carry the units, and values."""
