"""/v1: what clients of OpenAI's API ask"""

from typing import Any

from fastapi import APIRouter, Request, Response

from mochi_server.constants import OPENAI_PREFIX
from mochi_server.dependencies import CompletionsDep
from mochi_server.errors import (
    AgentInvalid,
    ContextOverflow,
    ModelNotFound,
    OllamaError,
    OllamaUnreachable,
    SessionBusy,
    SessionConflict,
    SessionNotFound,
    ShuttingDown,
    StorageBusy,
    StorageFailed,
    ToolNotFound,
    ValidationFailed,
)
from mochi_server.models.openai import (
    CompletionRequest,
    HeadersParam,
)
from mochi_server.models.openai_answers import Completion, OpenAIModel, OpenAIModelList
from mochi_server.openai.telling import Telling
from mochi_server.openai.wire import Chunks, Head, whole
from mochi_server.routers.connection import BodyReleasingRoute, until_disconnect
from mochi_server.routers.errors import ANY_ERROR, ANY_ROUTE, openai_described, openai_responses
from mochi_server.routers.sse import CompletionResponse

_CHUNKS = {
    "schema": {
        "type": "object",
        "description": "`data` is a chunk of the completion, an error, or `[DONE]`, the last.",
        "required": ["data"],
        "properties": {"data": {"type": "string"}},
    },
    "example": (
        'data: {"id":"chatcmpl-1f0c5e7a9b","object":"chat.completion.chunk","created":1790000000,"model":"qwen3:14b",'
        '"choices":[{"index":0,"delta":{"content":"Paris"},"finish_reason":null}]}\n\ndata: [DONE]\n\n'
    ),
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The completion, whole or as chunks.", "content": {"text/event-stream": _CHUNKS}}
}

router = APIRouter(
    prefix=OPENAI_PREFIX,
    tags=["OpenAI"],
    route_class=BodyReleasingRoute,
    responses={"default": openai_described(*ANY_ROUTE, description=ANY_ERROR)},
)


@router.get("/models", responses=openai_responses(OllamaUnreachable, OllamaError))
async def list_openai_models(completions: CompletionsDep) -> OpenAIModelList:
    """List what can be asked for: models that can chat, and agents as `agent:NAME`."""
    return OpenAIModelList(data=[OpenAIModel(id=name) for name in await completions.models()])


@router.get(
    "/models/{model_name:path}", responses=openai_responses(ModelNotFound, AgentInvalid, OllamaUnreachable, OllamaError)
)
async def get_openai_model(model_name: str, completions: CompletionsDep) -> OpenAIModel:
    """Whether a model or an agent can be asked for."""
    await completions.check_model(model_name)
    return OpenAIModel(id=model_name)


@router.post(
    "/chat/completions",
    response_model=Completion,
    responses=_ANSWERS
    | openai_responses(
        ValidationFailed,
        ContextOverflow,
        AgentInvalid,
        ModelNotFound,
        SessionNotFound,
        ToolNotFound,
        SessionBusy,
        SessionConflict,
        OllamaUnreachable,
        OllamaError,
        StorageFailed,
        StorageBusy,
        ShuttingDown,
    ),
)
async def create_chat_completion(
    request: Request,
    body: CompletionRequest,
    completions: CompletionsDep,
    headers: HeadersParam,
) -> Response:
    """Answer a conversation, whole or streamed: without a session nothing is stored."""
    begun = await until_disconnect(request, completions.start(await body.ask(headers)))
    head = Head.of(begun.run, body.model)
    if body.stream and begun.run.model_failure is None:
        return CompletionResponse(begun.runs, begun.run, Chunks(head, Telling.of(begun.run), body.wants_usage))
    with begun.runs.listening(begun.run):
        answer = await until_disconnect(request, whole(begun.run, head))
    return Response(answer, media_type="application/json")
