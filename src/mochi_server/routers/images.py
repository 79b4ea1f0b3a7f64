"""Images as responses: bytes that a browser shows and never runs."""

from typing import Any

from fastapi import Response

from mochi_server.sessions.images import MEDIA_TYPES, Image

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, max-age=31536000, immutable",
}
"""What has the name of its content never changes; and whoever may have it here, a shared cache may not pass it on."""

IMAGE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The image, as it was sent.",
        "content": {media_type: {"schema": {"type": "string", "format": "binary"}} for media_type in MEDIA_TYPES},
    }
}
"""The ``responses`` of a route that answers with an image."""


def image_response(image: Image) -> Response:
    """An image, under the type that its own bytes tell."""
    name = f"{image.sha256}.{image.media_type.partition('/')[2]}"
    disposition = {"Content-Disposition": f'inline; filename="{name}"'}
    return Response(image.data, media_type=image.media_type, headers=_HEADERS | disposition)
