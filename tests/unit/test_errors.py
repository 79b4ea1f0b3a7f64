"""Errors: the codes and statuses of the specification, and no file names in messages."""

from mochi_server import errors
from mochi_server.util.text import join_names
from tests.support.cases import cases

SPECIFICATION = {
    "SESSION_NOT_FOUND": 404,
    "MODEL_NOT_FOUND": 404,
    "TOOL_NOT_FOUND": 404,
    "AGENT_NOT_FOUND": 404,
    "AGENT_INVALID": 422,
    "PROMPT_NOT_FOUND": 404,
    "TOOL_EXECUTION_FAILED": 500,
    "TOOL_EXECUTION_DENIED": 403,
    "TOOL_CONFIRMATION_TIMEOUT": 408,
    "OLLAMA_UNREACHABLE": 502,
    "OLLAMA_ERROR": 502,
    "INVALID_MESSAGE_INDEX": 400,
    "VALIDATION_ERROR": 422,
    "INTERNAL_ERROR": 500,
}
"""§19.2"""


def test_codes_and_statuses_are_those_of_the_specification() -> None:
    ours = {(error.code, int(error.status)) for error in errors.all_errors()}
    assert SPECIFICATION.items() <= ours


def test_removed_model_is_not_suggested_in_its_own_place() -> None:
    message = errors.ModelNotFound("qwen3:8b", models=["qwen3:8b", "mochi"]).message
    assert "Did you mean" not in message
    assert "Choose one of the chat models: mochi." in message


def test_storage_error_has_no_file_name() -> None:
    for error in (
        TimeoutError("the lock /home/somebody/x.lock"),
        FileNotFoundError(2, "No such file", "/home/x"),
    ):
        body = errors.StorageFailed("save session 0123456789", error).body()
        assert b"save session 0123456789" in body
        assert b"/home" not in body


@cases(("count", "end"), [(10, "9"), (11, "10"), (12, "9 and 2 more")])
def test_list_of_names_omits_at_least_two(count: int, end: str) -> None:
    assert join_names([str(number) for number in range(count)]).endswith(f", {end}")
