"""Protocols of two frontend libraries, the AI SDK and AG-UI. These modules do not depend on HTTP."""
