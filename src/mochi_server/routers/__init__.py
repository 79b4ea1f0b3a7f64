"""One file per noun; a route is a signature and one call."""
