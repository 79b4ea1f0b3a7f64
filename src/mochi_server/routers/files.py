"""Responses that are files: exported sessions, and images, which a browser shows and never runs."""

from collections.abc import AsyncIterator

from fastapi import Response
from fastapi.responses import StreamingResponse

from mochi_server.models.transfer import ExportFormat
from mochi_server.routers.errors import Responses
from mochi_server.sessions.images import MEDIA_TYPES, Image

_KINDS: dict[ExportFormat, tuple[str, str]] = {
    "json": ("application/json", "json"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
}
_IMAGE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    # An image has the name of its content and never changes; shared caches must not send it to other users.
    "Cache-Control": "private, max-age=31536000, immutable",
}
EXPORTED: Responses = {
    200: {
        "description": "The file.",
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/SessionFile"}},
            "text/markdown": {"schema": {"type": "string"}},
        },
    }
}
IMAGE: Responses = {
    200: {
        "description": "The image, as it was sent.",
        "content": {media_type: {"schema": {"type": "string", "format": "binary"}} for media_type in MEDIA_TYPES},
    }
}


def exported(session_id: str, form: ExportFormat, parts: AsyncIterator[bytes]) -> Response:
    """Return an exported session as a file that is named after it."""
    media_type, suffix = _KINDS[form]
    disposition = f'attachment; filename="{session_id}.{suffix}"'
    return StreamingResponse(parts, headers={"Content-Type": media_type, "Content-Disposition": disposition})


def image_response(image: Image) -> Response:
    """Return an image, with the media type that its own bytes have."""
    name = f"{image.sha256}.{image.media_type.partition('/')[2]}"
    headers = _IMAGE_HEADERS | {"Content-Disposition": f'inline; filename="{name}"'}
    return Response(image.data, media_type=image.media_type, headers=headers)
