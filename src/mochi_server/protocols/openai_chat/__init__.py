"""OpenAI's API: routes under `/v1` for chat completions, text completions, models and embeddings."""

from fastapi import APIRouter, Request, Response

from mochi_server import errors
from mochi_server.constants import OPENAI_PREFIX
from mochi_server.dependencies import ServicesDep
from mochi_server.protocols import completions
from mochi_server.protocols.completions import answer_responses
from mochi_server.protocols.encoder import respond
from mochi_server.protocols.errors import OPENAI_ERRORS, openai_stream_error
from mochi_server.protocols.openai_chat.embeddings import EmbeddingList, EmbeddingRequest, embed
from mochi_server.protocols.openai_chat.encoder import ChunkEncoder, TextChunkEncoder
from mochi_server.protocols.openai_chat.request import (
    Completion,
    CompletionRequest,
    OpenAIModel,
    OpenAIModelList,
    TextCompletion,
    TextCompletionRequest,
    parse_completion,
    parse_text_completion,
)
from mochi_server.protocols.schemas import HeadersParam
from mochi_server.web.disconnect import until_disconnect
from mochi_server.web.exception_handlers import MODEL_ERRORS, OLLAMA_ERRORS, responses
from mochi_server.web.protocol import Protocol
from mochi_server.web.routes import BodyReleasingRoute

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
_COMPLETION = answer_responses("The completion, as JSON or in chunks.", _CHUNKS, OPENAI_ERRORS)


@router.get("/models/", include_in_schema=False)
@router.get("/models", responses=responses(*OLLAMA_ERRORS, form=OPENAI_ERRORS))
async def list_openai_models(services: ServicesDep) -> OpenAIModelList:
    """List the models, and the agents as `agent:NAME`. Models that cannot chat come after the chat models."""
    models = await completions.models(services)
    return OpenAIModelList(data=[OpenAIModel(id=name, created=modified) for name, modified in models.items()])


@router.get("/models/{model_name:path}", responses=responses(*MODEL_ERRORS, errors.AgentInvalid, form=OPENAI_ERRORS))
async def get_openai_model(model_name: str, services: ServicesDep) -> OpenAIModel:
    """Get a model or an agent. An unknown name returns 404."""
    return OpenAIModel(id=model_name, created=await completions.modified(services, model_name))


@router.post("/chat/completions", response_model=Completion, responses=_COMPLETION)
async def create_chat_completion(request: Request, body: CompletionRequest, headers: HeadersParam) -> Response:
    """Answer a conversation with one JSON response or a stream. If the request names no session, nothing is stored."""
    run = await completions.start(request, body.session_id(headers), parse_completion(body, headers))
    return await respond(request, ChunkEncoder(run, body), stream=body.stream)


@router.post("/completions", response_model=TextCompletion, responses=_COMPLETION)
async def create_completion(request: Request, body: TextCompletionRequest, headers: HeadersParam) -> Response:
    """Answer a prompt with one JSON response or a stream. The model receives the prompt as a user message."""
    parsing = parse_text_completion(body, headers)
    run = await completions.start(request, body.session_id(headers), parsing, messages="prompt")
    return await respond(request, TextChunkEncoder(run, body), stream=body.stream)


@router.post(
    "/embeddings",
    response_model=EmbeddingList,
    responses=responses(errors.ValidationFailed, *MODEL_ERRORS, form=OPENAI_ERRORS),
)
async def create_embeddings(request: Request, body: EmbeddingRequest, services: ServicesDep) -> Response:
    """Embed texts as vectors. Ollama computes the vectors."""
    return Response(await until_disconnect(request, embed(services.gateway, body)), media_type="application/json")
