"""Answers that are bytes already: pages of the list, which may be long, and sessions as files to be saved."""

import asyncio
from typing import Any

from fastapi import Response

from mochi_server.constants import TOTAL_HEADER
from mochi_server.models.sessions import SessionList
from mochi_server.models.transfer import ExportFormat
from mochi_server.sessions.types import SessionPage

_KINDS: dict[ExportFormat, tuple[str, str]] = {
    "json": ("application/json", "json"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
}
PAGE: dict[int | str, dict[str, Any]] = {
    200: {"headers": {TOTAL_HEADER: {"description": "Sessions on all pages.", "schema": {"type": "integer"}}}}
}
EXPORTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file.",
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/SessionFile"}},
            "text/markdown": {"schema": {"type": "string"}},
        },
    }
}


async def page_of(page: SessionPage) -> Response:
    """A page of the list."""
    response = await sessions_of(page.entries)
    response.headers[TOTAL_HEADER] = str(page.total)
    return response


async def sessions_of(entries: list[dict[str, Any]], status: int = 200) -> Response:
    """Sessions, by their list entries."""
    content = await asyncio.to_thread(SessionList.encoded, entries)
    return Response(content, status, media_type="application/json")


def download(session_id: str, form: ExportFormat, content: bytes) -> Response:
    """A file that is named after its session."""
    media_type, suffix = _KINDS[form]
    name = f'attachment; filename="{session_id}.{suffix}"'
    return Response(content, headers={"Content-Type": media_type, "Content-Disposition": name})
