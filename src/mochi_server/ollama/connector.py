"""Connection pool for Ollama that keeps the data received before a malformed chunk."""

from functools import partial

import aiohttp
from aiohttp.client_proto import ResponseHandler

_END_OF_HEAD = b"\r\n\r\n"


class Connector(aiohttp.TCPConnector):
    """Unlimited connection pool."""

    def __init__(self) -> None:
        super().__init__(limit=0)
        self._factory = partial(_ResponseProtocol, loop=self._loop)  # type: ignore[assignment]  # partial is invariant


class _ResponseProtocol(ResponseHandler):
    """Protocol that parses the head of each response separately.

    If one packet contains a head, valid chunks and a malformed chunk, aiohttp drops the whole response.
    """

    def data_received(self, data: bytes) -> None:
        if self._payload is None or self._payload.is_eof():  # the data begins with a head
            head, separator, data = data.partition(_END_OF_HEAD)
            super().data_received(head + separator)
            if not data:
                return
        super().data_received(data)
