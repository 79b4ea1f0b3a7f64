"""Generated metadata for models that are declared without metadata: templates, vocabulary and tensors."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

PLAIN_TEMPLATE = "{{ .Prompt }}"  # Ollama's default for a Modelfile without TEMPLATE
VOCABULARY = ("<unk>", "<s>", "</s>", *map(chr, range(32, 127)))
TOKENIZER_ARRAYS: dict[str, tuple[Any, ...]] = {
    "tokenizer.ggml.scores": (0.0,) * len(VOCABULARY),
    "tokenizer.ggml.token_type": (2, 3, 3, *(1,) * (len(VOCABULARY) - 3)),
    "tokenizer.ggml.tokens": VOCABULARY,
}
_SYSTEM = "{{ if .System }}{{ .System }}\n{{ end }}"
_CHAT = f"{_SYSTEM}%s{{{{ range .Messages }}}}{{{{ .Role }}}}: %s{{{{ .Content }}}}%s\n{{{{ end }}}}assistant:"
_TOOLS = "{{ if .Tools }}{{ json .Tools }}\n{{ end }}"
_CALLS = "{{ range .ToolCalls }}{{ json .Function }}{{ end }}"
_THINKING = "{{ if .Thinking }}<think>{{ .Thinking }}</think>{{ end }}"
_INSERT = "{{ if .Suffix }}<prefix>{{ .Prompt }}<suffix>{{ .Suffix }}<middle>{{ else }}%s{{ end }}"
_JINJA_TOOLS = "{% if tools %}{{ tools | tojson }}\n{% endif %}"
_JINJA_THINKING = "{% if enable_thinking %}<think>{% endif %}"


def go_template(capabilities: Collection[str]) -> str:
    """Return a Modelfile template in which Ollama detects the given capabilities."""
    chat = PLAIN_TEMPLATE
    if "tools" in capabilities or "thinking" in capabilities:
        tools, calls = (_TOOLS, _CALLS) if "tools" in capabilities else ("", "")
        chat = _CHAT % (tools, _THINKING if "thinking" in capabilities else "", calls)
    return _INSERT % chat if "insert" in capabilities else chat


def jinja_template(capabilities: Collection[str]) -> str:
    """Return a GGUF chat template in which Ollama detects the given capabilities."""
    tools = _JINJA_TOOLS if "tools" in capabilities else ""
    thinking = _JINJA_THINKING if "thinking" in capabilities else ""
    return f"{tools}{{% for m in messages %}}{{{{ m.role }}}}: {{{{ m.content }}}}\n{{% endfor %}}assistant:{thinking}"


def tensors(blocks: int, width: int, quantization: str) -> list[dict[str, Any]]:
    """Return the tensors of a transformer with `blocks` layers and embeddings of `width` numbers."""
    kind = quantization.removesuffix("_M").removesuffix("_S").removesuffix("_L")
    shapes = {
        "attn_norm": ("F32", (width,)),
        "attn_qkv": (kind, (width, 3 * width)),
        "attn_output": (kind, (width, width)),
        "ffn_up": (kind, (width, 4 * width)),
        "ffn_down": (kind, (4 * width, width)),
    }
    named = {
        "token_embd": (kind, (width, len(VOCABULARY))),
        **{f"blk.{block}.{name}": shape for block in range(blocks) for name, shape in shapes.items()},
        "output_norm": ("F32", (width,)),
    }
    return [{"name": f"{name}.weight", "type": type_, "shape": shape} for name, (type_, shape) in named.items()]
