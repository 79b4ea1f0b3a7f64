"""Routes under `/v1`, for clients of OpenAI's API."""

from fastapi import APIRouter, Request, Response

from mochi_server import errors
from mochi_server.constants import OPENAI_PREFIX
from mochi_server.dependencies import CompletionsDep
from mochi_server.models.openai import CompletionRequest, HeadersParam
from mochi_server.models.openai_responses import Completion, OpenAIModel, OpenAIModelList
from mochi_server.openai.response_encoding import ChunkEncoder, encode_completion
from mochi_server.web.disconnect import BodyReleasingRoute, until_disconnect
from mochi_server.web.exception_handlers import (
    MODEL_ERRORS,
    OLLAMA_ERRORS,
    STORAGE_ERRORS,
    Responses,
    any_error,
    responses,
)
from mochi_server.web.sse import RunResponse

_CHUNKS = {
    "type": "string",
    "description": "Server-sent events. `data` is a chunk of the completion, an error or, at the end, `[DONE]`.",
}
_COMPLETION: Responses = {
    200: {"description": "The completion, as JSON or in chunks.", "content": {"text/event-stream": {"schema": _CHUNKS}}}
}
_ERRORS = (
    *(errors.ValidationFailed, errors.ContextOverflow, errors.AgentInvalid, *MODEL_ERRORS),
    *(errors.SessionNotFound, errors.ToolNotFound, errors.SessionBusy, errors.SessionConflict),
    *(*STORAGE_ERRORS, errors.ShuttingDown),
)

router = APIRouter(
    prefix=OPENAI_PREFIX, tags=["OpenAI"], route_class=BodyReleasingRoute, responses=any_error(OPENAI_PREFIX)
)


@router.get("/models", responses=responses(*OLLAMA_ERRORS, prefix=OPENAI_PREFIX))
async def list_openai_models(completions: CompletionsDep) -> OpenAIModelList:
    """List the chat models, and the agents as `agent:NAME`."""
    return OpenAIModelList(data=[OpenAIModel(id=name) for name in await completions.models()])


@router.get("/models/{model_name:path}", responses=responses(*MODEL_ERRORS, errors.AgentInvalid, prefix=OPENAI_PREFIX))
async def get_openai_model(model_name: str, completions: CompletionsDep) -> OpenAIModel:
    """Get a model or an agent. An unknown name returns 404."""
    await completions.check_model(model_name)
    return OpenAIModel(id=model_name)


@router.post(
    "/chat/completions", response_model=Completion, responses=_COMPLETION | responses(*_ERRORS, prefix=OPENAI_PREFIX)
)
async def create_chat_completion(
    request: Request, body: CompletionRequest, completions: CompletionsDep, headers: HeadersParam
) -> Response:
    """Answer a conversation, as a whole or as a stream. If the request names no session, nothing is stored."""
    completion = await until_disconnect(request, completions.start(await body.to_input(headers)))
    if body.stream and completion.run.model_failure is None:
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        chunks = ChunkEncoder(completion.run, body.model, include_usage=include_usage)
        return RunResponse(completion.runs, completion.run, chunks=chunks)
    with completion.runs.subscribed(completion.run):
        answer = await until_disconnect(request, encode_completion(completion.run, body.model))
    return Response(answer, media_type="application/json")
