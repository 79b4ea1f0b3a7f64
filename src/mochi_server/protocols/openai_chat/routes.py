"""Routes of OpenAI's API under `/v1` for completions, models and embeddings."""

from fastapi import APIRouter, Request, Response

from mochi_server import errors
from mochi_server.constants import OPENAI_PREFIX
from mochi_server.dependencies import ServicesDep
from mochi_server.protocols.agent_models import change_time, change_times
from mochi_server.protocols.answer_request import ignored_options
from mochi_server.protocols.encoded_response import respond
from mochi_server.protocols.headers import HeadersParam
from mochi_server.protocols.openai_chat.embeddings import EmbeddingList, EmbeddingRequest, embed
from mochi_server.protocols.openai_chat.encoder import ChunkEncoder, TextChunkEncoder
from mochi_server.protocols.openai_chat.request import (
    CompletionRequest,
    StreamOptions,
    TextCompletionRequest,
    parse_completion,
    parse_prompt,
)
from mochi_server.protocols.openai_chat.response import (
    Completion,
    OpenAIModel,
    OpenAIModelList,
    TextCompletion,
)
from mochi_server.protocols.openai_errors import OPENAI_ERRORS, openai_stream_error
from mochi_server.protocols.turn_start import answer_responses, renamed_fields, start
from mochi_server.web.requests import Protocol, until_disconnect
from mochi_server.web.routes import MODEL_ERRORS, OLLAMA_ERRORS, BodyReleasingRoute, responses

router = APIRouter(tags=["OpenAI"], route_class=BodyReleasingRoute)
PROTOCOL = Protocol(
    OPENAI_PREFIX,
    router,
    openai_stream_error,
    OPENAI_ERRORS,
    resumes=False,
    turn_paths=("/chat/completions", "/completions"),
    description="Routes for clients of OpenAI's API. Errors have OpenAI's format.",
)

_CHUNKS = "`data` is a chunk of the completion, an error or, at the end, `[DONE]`."
_COMPLETION = answer_responses("The completion, as JSON or in chunks.", OPENAI_ERRORS, _CHUNKS)


@router.get("/models/", include_in_schema=False)
@router.get("/models", responses=responses(*OLLAMA_ERRORS, form=OPENAI_ERRORS))
async def list_openai_models(services: ServicesDep) -> OpenAIModelList:
    """List the models, and the agents as `agent:NAME`.

    Models that cannot chat come after the chat models.
    """
    times = await change_times(services)
    models = [OpenAIModel(id=name, created=time) for name, time in times.items()]
    return OpenAIModelList(data=models)


@router.get(
    "/models/{model_name:path}",
    responses=responses(*MODEL_ERRORS, errors.AgentInvalid, form=OPENAI_ERRORS),
)
async def get_openai_model(model_name: str, services: ServicesDep) -> OpenAIModel:
    """Get a model or an agent. An unknown name returns 404."""
    time = await change_time(services, model_name)
    return OpenAIModel(id=model_name, created=time)


@router.post("/chat/completions", response_model=Completion, responses=_COMPLETION)
async def create_chat_completion(
    request: Request, body: CompletionRequest, headers: HeadersParam
) -> Response:
    """Answer a conversation with one JSON response or a stream.

    If the request names no session, nothing is stored.
    """
    session_id = body.session_id(headers)
    turn, sent = await parse_completion(body, headers)
    run = await start(request, session_id, turn, sent)
    notices = [*ignored_options(body), *sent.notices]
    wants_usage = _wants_usage(body.stream_options)
    encoder = ChunkEncoder(run, body.model, notices, include_usage=wants_usage)
    return await respond(request, encoder, stream=body.stream)


@router.post("/completions", response_model=TextCompletion, responses=_COMPLETION)
async def create_completion(
    request: Request, body: TextCompletionRequest, headers: HeadersParam
) -> Response:
    """Answer a prompt with one JSON response or a stream.

    The model receives the prompt as a user message.
    """
    session_id = body.session_id(headers)
    with renamed_fields(messages="prompt"):
        turn, sent = await parse_prompt(body, headers)
        run = await start(request, session_id, turn, sent)
    notices = [*ignored_options(body), *sent.notices]
    wants_usage = _wants_usage(body.stream_options)
    encoder = TextChunkEncoder(run, body.model, notices, include_usage=wants_usage)
    return await respond(request, encoder, stream=body.stream)


def _wants_usage(options: StreamOptions | None) -> bool:
    return options is not None and bool(options.include_usage)


@router.post(
    "/embeddings",
    response_model=EmbeddingList,
    responses=responses(
        errors.ValidationFailed, *MODEL_ERRORS, errors.RateLimited, form=OPENAI_ERRORS
    ),
)
async def create_embeddings(
    request: Request, body: EmbeddingRequest, services: ServicesDep
) -> Response:
    """Embed texts as vectors. Ollama computes the vectors."""
    async with services.limiter.turn() as count_start:  # the limits of turns apply here too
        embedding = embed(services.gateway, body, count_start)
        content = await until_disconnect(request, embedding)
    return Response(content, media_type="application/json")
