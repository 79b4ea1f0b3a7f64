"""Answers that are bytes already: pages of the list, which may be long, and sessions as files to be saved."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import Response
from fastapi.responses import StreamingResponse

from mochi_server.constants import TOTAL_HEADER
from mochi_server.models.transfer import ExportFormat
from mochi_server.sessions.store import SessionPage

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
            "text/markdown": {"schema": {"type": "string"}, "example": "# Paris\n\n## User\n\nHello!\n"},
        },
    }
}


def page_of(page: SessionPage) -> Response:
    """A page of the list."""
    return sessions_of(page, headers={TOTAL_HEADER: str(page.total)})


def sessions_of(page: SessionPage, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Sessions, as stores have written them: checking thousands of entries again would take too long."""
    return Response(page.encoded, status, headers, media_type="application/json")


def download(session_id: str, form: ExportFormat, parts: AsyncIterator[bytes]) -> Response:
    """A file that is named after its session."""
    media_type, suffix = _KINDS[form]
    name = f'attachment; filename="{session_id}.{suffix}"'
    return StreamingResponse(parts, headers={"Content-Type": media_type, "Content-Disposition": name})
