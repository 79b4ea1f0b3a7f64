"""Route of the usage of API keys."""

from typing import Annotated

from fastapi import Query

from mochi_server.dependencies import ServicesDep
from mochi_server.errors import StorageBusy, StorageFailed, ValidationFailed
from mochi_server.schemas.usage import UsageEntry, UsageLimits, UsageReport
from mochi_server.sessions.caller import CALLER
from mochi_server.sessions.usage import today
from mochi_server.web.routes import PrefixRouter, responses

router = PrefixRouter(prefix="/usage", tags=["usage"])

DaysQuery = Annotated[
    int, Query(ge=1, le=400, description="Number of days in UTC, of which today is the last.")
]


@router.get("", responses=responses(ValidationFailed, StorageFailed, StorageBusy))
async def get_usage(services: ServicesDep, days: DaysQuery = 30) -> UsageReport:
    """Get the tokens that the API key has used, by day and model.

    A key of the scope `all` gets those of all keys.
    """
    caller = CALLER.get()
    usage = await services.usage.since(today(days - 1), None if caller.sees_all else caller.key)
    entries = []
    for key in sorted(usage, reverse=True):
        counts = usage[key]
        entries.append(
            UsageEntry(
                day=key.day,
                key=key.key,
                model=key.model,
                requests=counts.requests,
                prompt_tokens=counts.prompt_tokens,
                answer_tokens=counts.answer_tokens,
            )
        )
    return UsageReport(
        key=caller.key or None,
        limits=UsageLimits.model_validate(caller),
        tokens_today=await services.usage.tokens_today(caller.key),
        usage=entries,
    )
