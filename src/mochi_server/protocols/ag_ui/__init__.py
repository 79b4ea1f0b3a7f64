"""The AG-UI protocol: the route `/chat/{session_id}/ag-ui`."""
