"""Conversion of the results of MCP tools to text and images."""

from base64 import b64decode

import mcp_types
from pydantic_core import to_json

from mochi_server.constants import MAX_IMAGES
from mochi_server.sessions.images import Image
from mochi_server.tools.execution import ToolContent


def content_of(result: mcp_types.CallToolResult) -> ToolContent:
    """Return a tool result for a model, with at most ``MAX_IMAGES`` images.

    Audio, other binary data, invalid images and the images after the limit are replaced by a description.
    """
    images: list[Image] = []
    text = "\n".join(_text_of(block, images) for block in result.content)
    if not text and result.structured_content is not None:
        text = to_json(result.structured_content, fallback=str).decode()
    return ToolContent(text or "Done; there is no result.", tuple(images))


def _text_of(block: mcp_types.ContentBlock, images: list[Image]) -> str:
    """Return the text or the description of a content block. Add its image, if it has one, to ``images``."""
    if isinstance(block, mcp_types.TextContent):
        return block.text
    if isinstance(block, mcp_types.ImageContent | mcp_types.AudioContent):
        return _describe(block.type, block.mime_type, block.data, images)
    if isinstance(block, mcp_types.ResourceLink):
        return f"[resource {block.name}: {block.uri}]"
    if isinstance(block, mcp_types.EmbeddedResource):
        resource = block.resource
        if isinstance(resource, mcp_types.TextResourceContents):
            return f"[resource {resource.uri}]\n{resource.text}"
        return _describe(f"resource {resource.uri}", resource.mime_type or "binary", resource.blob, images)
    return f"[{getattr(block, 'type', 'content')}: not shown]"


def _describe(name: str, mime_type: str, base64: str, images: list[Image]) -> str:
    size = f"{len(base64.rstrip('=')) * 3 // 4:,} bytes"
    try:
        if mime_type.startswith("image/") and len(images) < MAX_IMAGES:
            images.append(Image.of(b64decode(base64, validate=True)))
            return f"[{name}, {images[-1].media_type}, {size}: image {len(images)} of this result]"
    except ValueError:  # invalid base64, or a format that models cannot read
        pass
    return f"[{name}, {mime_type}, {size}: not shown]"
