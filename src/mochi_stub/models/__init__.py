"""Declarations of models, and the load options."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

TemplateStyle = Literal["native", "template", "builtin"]

DEFAULT_CONTEXT = 4096
MIN_CONTEXT = 4
LOWERED_CONTEXTS = (32768, 4096)
"""Contexts in tokens to try if a larger default does not fit into memory."""

# default values; a request with another value reloads the model
LOAD_OPTIONS: Mapping[str, Any] = {
    "num_batch": 512,
    "num_gpu": -1,
    "main_gpu": 0,
    "use_mmap": None,
    "num_thread": 0,
    "draft_num_predict": 4,
}
_PARAMETER_UNITS = {
    "K": 1_000,
    "M": 1_000_000,
    "B": 1_000_000_000,
}
PLAIN_TEMPLATE = "{{ .Prompt }}"  # Ollama's default for a Modelfile without TEMPLATE
_TEMPLATES = {  # clients such as LiteLLM search the template for these names
    "tools": "{{ if .Tools }}{{ json .Tools }}{{ end }}",
    "thinking": "{{ if .Thinking }}<think>{{ .Thinking }}</think>{{ end }}",
    "insert": "{{ if .Suffix }}<prefix>{{ .Prompt }}<suffix>{{ .Suffix }}<middle>{{ end }}",
}


@dataclass(frozen=True)
class Remote:
    """Remote model behind a cloud model.

    The stub answers for it, and never loads the cloud model into memory.

    Attributes:
        model: Name of the remote model.
        host: URL of the host that has the remote model.
        max_num_predict: Largest `num_predict` that the host accepts. Requests with a larger one are
            refused.
    """

    model: str
    host: str = "https://ollama.com:443"
    max_num_predict: int | None = None


@dataclass(frozen=True)
class Model:
    """Model of the stub.

    If `info`, `listed_quantization`, `weights` or `manifest` is set, it replaces a value that is
    otherwise generated.

    Attributes:
        capabilities: Capabilities in the order of `/api/show`: `completion`, `tools`, `thinking`,
            `vision`, `insert`, `embedding`, `audio`, `image`.
        context_length: Context length of the model in tokens, at least 4.
        embedding_length: Number of values in an embedding.
        family: Family in `/api/show`.
        parameter_size: Parameter size in `/api/show`, for example `8.0B`.
        quantization: Quantization level in `/api/show`.
        listed_quantization: Quantization level in `/api/tags`.
        size: Size in bytes.
        modified_at: Time of the last change, for example `2026-01-15T09:00:00Z`.
        template_style: How Ollama handles the tool calls of the model. With `template` and
            `builtin`, a stream has a separate line for each tool call. With `native`, the last line
            contains all tool calls.
        chars_per_token: Number of characters per token.
        parameters: Parameters of the Modelfile.
        system: System prompt of the Modelfile.
        template: Template of the Modelfile. The default template depends on the capabilities.
        chat_template: Template of the GGUF file, for a model with the template_style `native`.
        license: Text of the license.
        parent: Name of the model from which a client created this model.
        source: Name of the configured model whose replies this model has. If it is empty, the model
            has its own replies.
        tensors: Tensors in `/api/show`.
        least_context: Minimum context in tokens. The default is 4, or 2048 for a model with vision.
        load_time: Seconds to load the model. If 0, there is no delay, but responses report 100 ms
            for a reload.
        remote: Remote model, if this is a cloud model.
        out_of_memory_above: Largest context in tokens that fits into memory. A load that requests a
            larger one fails. A context that the stub chooses is lowered first.
        weights: Digest of the weights.
        manifest: Digest of the manifest.
    """

    name: str
    capabilities: tuple[str, ...] = ("completion",)
    context_length: int = 8192
    embedding_length: int = 4096
    family: str = "llama"
    parameter_size: str = "8.0B"
    quantization: str = "Q4_K_M"
    listed_quantization: str | None = None
    format: str = "gguf"
    size: int = 4_920_753_328
    modified_at: str = "2026-01-05T09:00:00Z"
    parent: str = ""
    source: str = ""
    template_style: TemplateStyle = "template"
    chars_per_token: float = 1
    parameters: Mapping[str, Any] = field(default_factory=dict)
    system: str = ""
    template: str = ""
    chat_template: str = ""
    license: str = ""
    info: Mapping[str, Any] | None = None
    tensors: Sequence[Mapping[str, Any]] = ()
    remote: Remote | None = None
    least_context: int | None = None
    load_time: float = 0.0
    out_of_memory_above: int | None = None
    weights: str = ""
    manifest: str = ""

    def has_capability(self, capability: str) -> bool:
        return capability in self.capabilities

    @property
    def shifts_context(self) -> bool:
        """Default of the request field `shift`: whether Ollama removes old tokens when the context
        is full.
        """
        return self.family != "deepseek2"

    @cached_property
    def digest(self) -> str:
        """Digest of the manifest: 64 hexadecimal digits."""
        return self.manifest or sha256(f"manifest {self.name}".encode())

    @cached_property
    def blob_digest(self) -> str:
        """Digest of the weights: 64 hexadecimal digits."""
        return self.weights or sha256(f"blob {self.name}".encode())

    @cached_property
    def modelfile_template(self) -> str:
        """Template of the Modelfile."""
        if self.template:
            return self.template
        if self.template_style == "native":
            return PLAIN_TEMPLATE
        return self._generated_template

    @cached_property
    def rendered_template(self) -> str:
        """Template with which Ollama renders prompts."""
        return self.chat_template or self.template or self._generated_template

    @property
    def _generated_template(self) -> str:
        template = ""
        for capability, text in _TEMPLATES.items():
            if capability in self.capabilities:
                template += text
        return template + PLAIN_TEMPLATE

    @cached_property
    def model_info(self) -> Mapping[str, Any]:
        """Metadata of the weights, sorted by key."""
        info = self.info
        if info is None:
            info = self._generated_info()
        return dict(sorted(info.items()))

    def _generated_info(self) -> Mapping[str, Any]:
        info = {
            "general.architecture": self.family,
            "general.file_type": 15,
            "general.parameter_count": _parameter_count(self.parameter_size),
            f"{self.family}.attention.head_count": 32,
            f"{self.family}.attention.head_count_kv": 8,
            f"{self.family}.block_count": 32,
            f"{self.family}.context_length": self.context_length,
            f"{self.family}.embedding_length": self.embedding_length,
            "tokenizer.ggml.model": "gpt2",
        }
        if not self.has_capability("completion"):
            info[f"{self.family}.pooling_type"] = 1
        return info


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _parameter_count(parameter_size: str) -> int:
    if not parameter_size:
        return 0
    unit = _PARAMETER_UNITS.get(parameter_size[-1])
    if unit is None:
        return round(float(parameter_size))
    return round(float(parameter_size[:-1]) * unit)


def effective_context(
    model: Model, options: Mapping[str, Any], default: int = DEFAULT_CONTEXT
) -> int:
    """Return the context length in tokens: `num_ctx` or `default`, adjusted to the limits of the
    model.
    """
    minimum = MIN_CONTEXT
    if model.least_context:
        minimum = model.least_context
    elif model.has_capability("vision"):
        minimum = 2048
    maximum = model.context_length or sys.maxsize
    context = default
    if options.get("num_ctx") is not None:
        context = int(options["num_ctx"])
    return min(max(context, minimum), maximum)
