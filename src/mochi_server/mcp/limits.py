"""How much an MCP server may say at once."""

MAX_MESSAGE_BYTES = 16 * 1024 * 1024


class TooLarge(Exception):
    """A message is larger than that."""

    def __init__(self) -> None:
        super().__init__(f"it sent a message of more than {MAX_MESSAGE_BYTES // 1024 // 1024} MiB")
