"""Conformance of each operation with the OpenAPI document.

`MOCHI_FUZZ_EXAMPLES` sets the number of requests.
"""

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
    refused_methods_have_allow_header,
    streams_are_complete,
    the_server_has_no_defect,
    valid_data_is_accepted,
)
from tests.fuzz.document import document
from tests.fuzz.feeding import with_existing_names
from tests.fuzz.world import World

_SECONDS = 8
"""Timeout without data. Streams send a ping every ten seconds."""
_EXAMPLES = int(os.environ.get("MOCHI_FUZZ_EXAMPLES", "12"))
_LONG_EXAMPLES = 12
"""Number of requests for each operation from which the tests also send each edge value of each
field.
"""
_CONFIG = {
    "phases": {"coverage": {"enabled": _EXAMPLES >= _LONG_EXAMPLES}},
    "max-stream-events": 1_000_000,  # streams are read to their ends
    "suppress-health-check": ["too_slow"],  # it measures how busy the machine is
    "checks": {
        "negative_data_rejection": {"expected-statuses": [400, 404, 405, 408, 409, 413, 422]}
    },
    "generation": {
        "mode": "all",
        "max-examples": _EXAMPLES,
        "deterministic": True,
        "database": "none",
    },
}
_CHECKS = [
    the_server_has_no_defect,
    valid_data_is_accepted,
    invalid_data_is_refused,
    refused_methods_have_allow_header,
    streams_are_complete,
    of_openapi.status_code_conformance,
    of_openapi.content_type_conformance,
    of_openapi.response_schema_conformance,
    of_openapi.response_headers_conformance,
]

pytestmark = [
    pytest.mark.slow,
    # schemathesis generates no ZIP files
    pytest.mark.filterwarnings("ignore:Skipped test cases with unsupported payload"),
]
schema = schemathesis.openapi.from_dict(
    document(), config=SchemathesisConfig.from_dict(_CONFIG)
).exclude(path="/api/v1/mcp/callback")
"""All operations, except the page for browsers, which reports errors as HTML."""


@schema.parametrize()
def test_operation_conforms_to_the_document(case: Case[Any], world: World) -> None:
    if case.meta is not None and case.meta.generation.mode == GenerationMode.POSITIVE:
        case.body = with_existing_names(case.body)
    with world.resources_for(case):
        response = case.call(base_url=world.url, timeout=_SECONDS)
    case.validate_response(response, checks=_CHECKS)
