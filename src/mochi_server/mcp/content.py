"""What a tool of an MCP server answered, as a model reads it: what is not text is described, never dumped."""

from collections.abc import Iterable

from mcp_types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic_core import to_json

_NOT_SHOWN = "not shown"


def text_of(result: CallToolResult) -> str:
    """The answer as one text."""
    said = "\n".join(_parts(result.content))
    if not said and result.structured_content is not None:
        return to_json(result.structured_content, fallback=str).decode()
    return said or "Done; there is no result."


def _parts(content: Iterable[ContentBlock]) -> Iterable[str]:
    return (_part(block) for block in content)


def _part(block: ContentBlock) -> str:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent | AudioContent):
        return f"[{block.type}, {block.mime_type}, {_size(block.data)}: {_NOT_SHOWN}]"
    if isinstance(block, ResourceLink):
        return f"[resource {block.name}: {block.uri}]"
    if isinstance(block, EmbeddedResource):
        resource = block.resource
        if isinstance(resource, TextResourceContents):
            return f"[resource {resource.uri}]\n{resource.text}"
        return f"[resource {resource.uri}, {resource.mime_type or 'binary'}, {_size(resource.blob)}: {_NOT_SHOWN}]"
    return f"[{getattr(block, 'type', 'content')}: {_NOT_SHOWN}]"


def _size(base64: str) -> str:
    return f"{len(base64.rstrip('=')) * 3 // 4:,} bytes"
