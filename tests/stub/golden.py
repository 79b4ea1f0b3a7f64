"""Models and replies of the real server at the time of its capture."""

from __future__ import annotations

from typing import Any

from mochi_stub import (
    Durations,
    Failure,
    Logprob,
    Model,
    Prompt,
    Reasoning,
    Remote,
    Reply,
    Text,
    ToolCall,
    ToolCalls,
    Usage,
)
from mochi_stub.reply import Finish

TENSORS = ({"name": "token_embd.weight", "type": "F32", "shape": (64, 8)},)


def facts(family: str, vocabulary: int) -> dict[str, Any]:
    return {
        f"{family}.attention.head_count": 4,
        f"{family}.attention.head_count_kv": 4,
        f"{family}.attention.layer_norm_rms_epsilon": 0.00001,
        f"{family}.block_count": 1,
        f"{family}.context_length": 8192,
        f"{family}.embedding_length": 64,
        f"{family}.feed_forward_length": 128,
        f"{family}.rope.dimension_count": 16,
        f"{family}.vocab_size": vocabulary,
    }


def info(architecture: str, vocabulary: int, **more: Any) -> dict[str, Any]:
    return {
        "general.architecture": architecture,
        "general.file_type": 0,
        "general.parameter_count": 512,
        **facts("llama", vocabulary),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.scores": None,
        "tokenizer.ggml.token_type": None,
        "tokenizer.ggml.tokens": None,
        **more,
    }


def model(name: str, modified: str, **more: Any) -> Model:
    common: dict[str, Any] = {
        "embedding_length": 64,
        "parameter_size": "512",
        "quantization": "unknown",
        "listed_quantization": "F32",
        "tensors": TENSORS,
        "info": info("llama", 8),
        **more,
    }
    return Model(name, modified_at=f"2026-11-20T18:{modified}Z", **common)


ALL = ("completion", "tools", "thinking")
ONE_LINE = "{% for m in messages %}{{ m.role }}: {{ m.content }}"

MODELS = (
    model("gotool", "17:50.141859836", capabilities=("completion", "tools")),
    model("coder", "17:50.236845535", capabilities=ALL, template_style="builtin"),
    model("plain3", "16:57.939527844", parent="plain:latest"),
    Model(
        "rem",
        capabilities=ALL,
        context_length=131072,
        embedding_length=0,
        family="gptoss",
        format="",
        parameter_size="",
        quantization="",
        modified_at="2026-11-20T18:16:57.968208131Z",
        remote=Remote("gpt-oss:120b"),
    ),
    model(
        "plain",
        "16:34.122423194",
        template_style="native",
        system="You are plain.",
        parameters={"num_ctx": 4096, "stop": ["</s>"], "temperature": 0.5},
        license="MIT",
        chat_template=f"{ONE_LINE}\n{{% endfor %}}assistant:",
    ),
    model(
        "full",
        "16:34.241665693",
        capabilities=("tools", "thinking", "completion"),
        template_style="native",
        info=info("llama", 9),
        chat_template=(
            f"{{% if tools %}}{{{{ tools }}}}{{% endif %}}{ONE_LINE}{{% if m.tool_calls %}}x{{% "
            f"endif %}}\n{{% endfor %}}assistant:<think></think>"
        ),
    ),
    model(
        "emb",
        "16:34.35066245",
        capabilities=("embedding",),
        context_length=0,  # the captured list has no lengths of this model
        embedding_length=0,
        family="bert",
        info=info("bert", 8, **facts("bert", 8), **{"bert.pooling_type": 1}),
    ),
    model("q3", "16:34.694298599", capabilities=ALL),
    model("gothink", "16:34.579182686", capabilities=("completion", "thinking")),
)

COUNTED = Usage(input=11, output=5)
TIMED = Durations(prompt_eval=12_500_000, eval=40_250_000)
HI = ("Hi", " <b>&", " there")
PONDER = Reasoning(("pon", "der"))
ANSWER = Text(("Answer", " 4"))
RAW_THOUGHT = Text(("<think>", "pon", "der", "</think>", "\n\n", "Answer", " 4"))
OSLO = {"city": "Oslo"}
KAPUT = Failure("llama-server chat error: map[code:500 message:kaput]")
GARBLED = (
    "error unmarshalling llama-server response: invalid character 'b' looking for beginning of "
    "object key string"
)
LIKELY = Logprob("Hi", -0.25, (("Hi", -0.25), ("Yo", -1.5)))
X_CONTEXT = (736, 318, 313, 579, 506, 298, 259, 537)
CONTEXTS = {
    "plain": X_CONTEXT,
    "full": (506, 2899, 625, 53),
    "gothink": (506, 876, 3068, 625, 53),
    "coder": (1685, 1866, 2224, 665, 2024, 625, 53),
}


def script(prompt: Prompt) -> Reply | None:
    """Return the script of the captured model process."""
    if prompt.operation == "embed":
        return Reply(embedding=(0.5, -0.5, 0.5, 0.5), usage=Usage(input=3))
    parts = (chat_parts if prompt.operation == "chat" else generate_parts)(prompt)
    finish: Finish = "length" if prompt.user_text == "long" else "stop"
    return Reply(parts, finish, COUNTED, TIMED, CONTEXTS.get(prompt.model))


def chat_parts(prompt: Prompt) -> list[Any]:
    thought = [PONDER] if prompt.includes_reasoning else []
    two_calls = ToolCalls(
        [
            ToolCall(
                "get_weather",
                {"city": "Oslo", "location": "Boston", "unit": "<C>"},
                "Zx81aAbbccddeeff00112233445566aa",
            ),
            ToolCall("now", {}, "Second"),
        ]
    )
    one_call = ToolCalls([ToolCall("get_weather", OSLO)])
    contents: dict[str, list[Any]] = {
        "hi": [*thought, Text(HI, (LIKELY,) * 3)],
        "long": [Text(HI)],
        "tool": [*thought, Text(("Looking. ",)), two_calls],
        "usetool": [
            Reasoning(("Let me look.",)) if prompt.includes_reasoning else Text(("Let me look. ",)),
            one_call,
        ],
        "usethink": [PONDER, RAW_THOUGHT if prompt.format else ANSWER],
        "boom": [Text(("Hi",)), KAPUT],
        "early": [KAPUT],
    }
    return contents[prompt.user_text]


def generate_parts(prompt: Prompt) -> list[Any]:
    thought = Reasoning(("<think>", "pon", "der")) if prompt.model == "coder" else PONDER
    contents: dict[str, list[Any]] = {
        "x": [Text(HI, (Logprob("Hi", -0.25),) * 3)],
        "usethink": [thought, ANSWER],
        "boom": [Text(HI), Failure(GARBLED)],
    }
    return contents[prompt.user_text]


PARTIAL_MODELS = (
    model("plain", "16:34.1"),
    model(
        "full", "16:34.2", capabilities=("tools", "thinking", "completion"), template_style="native"
    ),
    model("gotool", "16:34.3", capabilities=("completion", "tools")),
    model("emb", "16:34.4", capabilities=("embedding",)),
    model("gosuf", "16:34.5", capabilities=("completion", "insert")),
    model(
        "vis",
        "16:34.6",
        capabilities=("tools", "thinking", "completion", "vision"),
        template_style="native",
    ),
    model(
        "gothink",
        "16:34.7",
        capabilities=("completion", "tools", "thinking"),
        system="You think.",
        parameters={"temperature": 0.5},
        license="MIT",
    ),
)
"""Models of the partial captures. Some differ from the models with the same names in `MODELS`."""


def short_reply(prompt: Prompt) -> Reply:
    """Return a reply with a thought for models that think."""
    return Reply([*([Reasoning(("hm",))] if prompt.includes_reasoning else []), Text(("Hi",))])
