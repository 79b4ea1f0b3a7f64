"""Routes under `/v1`, for clients of OpenAI's API."""

from fastapi import APIRouter, Request, Response

from mochi_server import errors
from mochi_server.constants import OPENAI_PREFIX
from mochi_server.dependencies import CompletionsDep, EmbeddingsDep, ResponseItemsDep
from mochi_server.models.openai import (
    TEXT_PARAMETERS,
    CompletionRequest,
    HeadersParam,
    StreamOptions,
    TextCompletionRequest,
)
from mochi_server.models.openai_embeddings import EmbeddingList, EmbeddingRequest
from mochi_server.models.openai_responses import Completion, OpenAIModel, OpenAIModelList, TextCompletion
from mochi_server.models.responses_api import RESPONSE_PARAMETERS, ModelResponse, ResponseRequest
from mochi_server.openai.errors import renaming_parameters
from mochi_server.openai.responses_state import response_id
from mochi_server.protocols.openai_chat.encoder import ChunkEncoder, TextChunkEncoder
from mochi_server.protocols.responses.encoder import ResponseEncoder
from mochi_server.protocols.streaming import respond
from mochi_server.web.disconnect import until_disconnect
from mochi_server.web.exception_handlers import (
    MODEL_ERRORS,
    OLLAMA_ERRORS,
    STORAGE_ERRORS,
    Responses,
    any_error,
    responses,
)
from mochi_server.web.routes import BodyReleasingRoute

_ERRORS = (
    *(errors.ValidationFailed, errors.ContextOverflow, errors.AgentInvalid, *MODEL_ERRORS),
    *(errors.SessionNotFound, errors.ToolNotFound, errors.SessionBusy, errors.SessionConflict),
    *(errors.IdempotencyKeyReused, errors.ToolNotCalled),
    *(*STORAGE_ERRORS, errors.ShuttingDown),
)

router = APIRouter(
    prefix=OPENAI_PREFIX, tags=["OpenAI"], route_class=BodyReleasingRoute, responses=any_error(OPENAI_PREFIX)
)


def _responses(description: str, events: str) -> Responses:
    schema = {"type": "string", "description": f"Server-sent events. {events}"}
    succeeded = {"description": description, "content": {"text/event-stream": {"schema": schema}}}
    return {200: succeeded, **responses(*_ERRORS, prefix=OPENAI_PREFIX)}


_CHUNKS = "`data` is a chunk of the completion, an error or, at the end, `[DONE]`."
_COMPLETION = _responses("The completion, as JSON or in chunks.", _CHUNKS)
_EVENTS = "`event` is the type of the event, and `data` is the event as JSON."


@router.get("/models/", include_in_schema=False)
@router.get("/models", responses=responses(*OLLAMA_ERRORS, prefix=OPENAI_PREFIX))
async def list_openai_models(completions: CompletionsDep) -> OpenAIModelList:
    """List the models, and the agents as `agent:NAME`. Models that cannot chat come after the chat models."""
    models = await completions.models()
    return OpenAIModelList(data=[OpenAIModel(id=name, created=modified) for name, modified in models.items()])


@router.get("/models/{model_name:path}", responses=responses(*MODEL_ERRORS, errors.AgentInvalid, prefix=OPENAI_PREFIX))
async def get_openai_model(model_name: str, completions: CompletionsDep) -> OpenAIModel:
    """Get a model or an agent. An unknown name returns 404."""
    return OpenAIModel(id=model_name, created=await completions.modified(model_name))


@router.post("/chat/completions", response_model=Completion, responses=_COMPLETION)
async def create_chat_completion(
    request: Request, body: CompletionRequest, completions: CompletionsDep, headers: HeadersParam
) -> Response:
    """Answer a conversation with one JSON response or a stream. If the request names no session, nothing is stored."""
    run = await until_disconnect(request, completions.start(await body.to_input(headers)))
    encoder = ChunkEncoder(run, body.model, include_usage=_includes_usage(body.stream_options))
    return await respond(request, encoder, stream=body.stream)


@router.post("/completions", response_model=TextCompletion, responses=_COMPLETION)
async def create_completion(
    request: Request, body: TextCompletionRequest, completions: CompletionsDep, headers: HeadersParam
) -> Response:
    """Answer a prompt with one JSON response or a stream. The model receives the prompt as a user message."""
    completion_input = await body.to_input(headers)
    with renaming_parameters(TEXT_PARAMETERS):
        run = await until_disconnect(request, completions.start(completion_input))
    encoder = TextChunkEncoder(run, body.model, include_usage=_includes_usage(body.stream_options))
    return await respond(request, encoder, stream=body.stream)


@router.post(
    "/responses", response_model=ModelResponse, responses=_responses("The response, as JSON or as events.", _EVENTS)
)
async def create_response(
    request: Request, body: ResponseRequest, completions: CompletionsDep, items: ResponseItemsDep, headers: HeadersParam
) -> Response:
    """Answer the items of a conversation with one JSON response or a stream of events."""
    completion_input = await body.to_input(headers, items)
    with renaming_parameters(RESPONSE_PARAMETERS):
        run = await until_disconnect(request, completions.start(completion_input))
    session_id = completion_input.session_id
    answer_id = response_id(session_id, run.position, run.run_id)
    fields = body.echo() | {"id": answer_id, "store": session_id is not None}
    refers = session_id is None and body.store is not False
    encoder = ResponseEncoder(run, fields, items.add if refers else lambda _: None)
    return await respond(request, encoder, stream=body.stream)


@router.post(
    "/embeddings",
    response_model=EmbeddingList,
    responses=responses(errors.ValidationFailed, *MODEL_ERRORS, prefix=OPENAI_PREFIX),
)
async def create_embeddings(request: Request, body: EmbeddingRequest, embeddings: EmbeddingsDep) -> Response:
    """Embed texts as vectors. Ollama computes the vectors."""
    creating = embeddings.create(body.model, body.texts, body.dimensions, body.encoding_format or "float")
    return Response(await until_disconnect(request, creating), media_type="application/json")


def _includes_usage(options: StreamOptions | None) -> bool:
    return bool(options and options.include_usage)
