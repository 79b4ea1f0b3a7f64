"""The protocols of frontend libraries: the AI SDK and AG-UI."""
