"""Protocols of frontend libraries, the AI SDK and AG-UI: requests, encoders of runs and approvals, without HTTP."""
