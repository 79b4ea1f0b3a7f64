"""The API does what its document says, operation by operation. ``MOCHI_FUZZ_EXAMPLES`` makes it ask more."""

import os
from typing import Any

import pytest
import schemathesis
from schemathesis import Case
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks as of_openapi

from tests.fuzz.checks import (
    invalid_data_is_refused,
    refused_methods_are_told_the_others,
    streams_are_whole,
    the_server_has_no_defect,
    valid_data_is_taken,
)
from tests.fuzz.document import document
from tests.fuzz.feeding import fed
from tests.fuzz.world import World

_SECONDS = 8
"""Without a byte; streams send a ping every ten."""
_CONFIG = {
    "max-stream-events": 1_000_000,  # streams are read to their ends
    "checks": {"negative_data_rejection": {"expected-statuses": [400, 404, 405, 408, 409, 413, 422]}},
    "generation": {
        "mode": "all",
        "max-examples": int(os.environ.get("MOCHI_FUZZ_EXAMPLES", "12")),
        "deterministic": True,
        "database": "none",
    },
}
_CHECKS = [
    the_server_has_no_defect,
    valid_data_is_taken,
    invalid_data_is_refused,
    refused_methods_are_told_the_others,
    streams_are_whole,
    of_openapi.status_code_conformance,
    of_openapi.content_type_conformance,
    of_openapi.response_schema_conformance,
    of_openapi.response_headers_conformance,
]

pytestmark = pytest.mark.slow
schema = schemathesis.openapi.from_dict(document(), config=SchemathesisConfig.from_dict(_CONFIG))


@schema.parametrize()
def test_operation_answers_as_documented(case: Case[Any], world: World) -> None:
    if case.meta is not None and case.meta.generation.mode == GenerationMode.POSITIVE:
        case.body = fed(case.body)
    with world.made_for(case):
        response = case.call(base_url=world.url, timeout=_SECONDS)
    case.validate_response(response, checks=_CHECKS)
