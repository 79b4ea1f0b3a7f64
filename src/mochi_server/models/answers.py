"""An example of each answer for the documentation, by the name of its schema."""

from typing import Any

_SESSION_ID, _MODEL, _AGENT_CHAT = "a1b2c3d4e5", "qwen3:14b", "b2c3d4e5f6"
_CREATED, _UPDATED = "2026-01-15T10:30:00.000000+00:00", "2026-01-15T10:35:00.000000+00:00"
_QUESTION, _ANSWER = "What is the capital of France?", "The capital of France is Paris."

_MESSAGE = {
    "role": "assistant",
    "content": _ANSWER,
    "message_id": "f1e2d3c4b5",
    "timestamp": _UPDATED,
    "model": _MODEL,
    "eval_count": 45,
    "prompt_eval_count": 120,
    "done_reason": "stop",
}
_MESSAGES = [{"role": "user", "content": _QUESTION, "message_id": "0c1d2e3f4a", "timestamp": _CREATED}, _MESSAGE]
_SESSION = {
    "session_id": _SESSION_ID,
    "model": _MODEL,
    "created_at": _CREATED,
    "updated_at": _UPDATED,
    "message_count": 2,
    "title": _QUESTION,
    "preview": _QUESTION,
    "summary": {"summary": "The user asked for the capital of France.", "topics": ["France"]},
    "summary_model": None,
    "format_version": "1.3",
    "tool_settings": {"tools": ["get_current_time"], "tool_group": None, "execution_policy": "always_confirm"},
    "agent_settings": {"enabled_agents": ["coder"], "selection_metadata": None},
    "context_window_config": {
        "dynamic_enabled": True,
        "current_window": 8192,
        "last_adjustment": "initial_setup",
        "adjustment_history": [],
        "manual_override": False,
    },
    "options": {"temperature": 0.2},
    "keep_alive": None,
    "think": None,
    "format": None,
}
_CHAT = _SESSION | {
    "session_id": _AGENT_CHAT,
    "agent_name": "coder",
    "title": "Which files are there?",
    "preview": "Which files are there?",
}
_CHAT_MESSAGES = [
    {"role": "user", "content": "Which files are there?", "message_id": "5a4b3c2d1e", "timestamp": _CREATED},
    _MESSAGE | {"content": "There is one file, notes.md."},
]
_WINDOW = {"current_window": 8192, "usage_tokens": 165, "reason": "initial_setup"}
_CALLED = {
    "call_index": 0,
    "tool_name": "get_current_time",
    "arguments": {"timezone": "Europe/Oslo"},
    "success": True,
    "result": "Current time: 2026-01-15 11:35:00 CET",
    "error_message": None,
    "error_code": None,
    "execution_time": 0.0004,
}
_TIMEZONE = 'A time zone such as "Europe/Berlin"; empty for this machine\'s own.'
_TOOL = {
    "name": "get_current_time",
    "description": "Get the current date and time.",
    "parameters": {"timezone": {"type": "str", "description": _TIMEZONE}},
    "destructive": False,
}
_FUNCTION = {
    "name": "get_current_time",
    "description": "Get the current date and time.",
    "parameters": {"type": "object", "properties": {"timezone": {"type": "string", "description": _TIMEZONE}}},
}
_READ_FILE = {
    "name": "read_file",
    "description": "Read a text file.",
    "parameters": {"path": {"type": "str", "description": "The file, relative to the workspace."}},
    "destructive": False,
}
_AGENT = {
    "name": "coder",
    "description": "A coding agent with file system operations.",
    "model": None,
    "valid": True,
    "error_message": None,
    "tool_count": 1,
    "tools": ["read_file"],
}
_OLLAMA_MODEL = {
    "name": _MODEL,
    "size_mb": 9048.2,
    "format": "gguf",
    "family": "qwen3",
    "parameter_size": "14.8B",
    "quantization_level": "Q4_K_M",
    "capabilities": ["completion", "tools"],
    "context_length": 40960,
}
_OPENAI_MODEL = {"id": _MODEL, "object": "model", "created": 0, "owned_by": "mochi-server"}
_RUNS = {"total": 1, "succeeded": 1, "failed": 0, "mean_seconds": 0.0004}

ANSWERS: dict[str, dict[str, Any]] = {
    "Health": {
        "status": "ok",
        "ollama_connected": True,
        "ollama_host": "http://localhost:11434",
        "version": "0.1.0",
    },
    "Alive": {"status": "alive"},
    "Ready": {"status": "ready"},
    "Model": _OLLAMA_MODEL,
    "ModelList": {"models": [_OLLAMA_MODEL]},
    "Session": _SESSION,
    "SessionDetail": _SESSION | {"messages": _MESSAGES},
    "SessionList": {"sessions": [_SESSION]},
    "SessionsImported": {"sessions": [_SESSION]},
    "MessageList": {"session_id": _SESSION_ID, "messages": _MESSAGES},
    "SummaryOut": {
        "summary": "The user asked for the capital of France.",
        "topics": ["France"],
        "model_used": _MODEL,
    },
    "SessionStatus": {
        "session_id": _SESSION_ID,
        "model": _MODEL,
        "message_count": 2,
        "context_window": {
            "dynamic_enabled": True,
            "current_window": 8192,
            "model_max_context": 40960,
            "last_adjustment_reason": "initial_setup",
            "manual_override": False,
            "manual_override_session_id": None,
            "usage_tokens": 165,
            "usage_ratio": 0.0201,
        },
        "tools_enabled": True,
        "active_tools": ["get_current_time"],
        "execution_policy": "always_confirm",
        "agents_enabled": True,
        "enabled_agents": ["coder"],
        "system_prompt_file": None,
        "summary": _SESSION["summary"],
        "summary_model": None,
    },
    "ChatResponse": {
        "session_id": _SESSION_ID,
        "message": _MESSAGE,
        "tool_calls_executed": [_CALLED],
        "context_window": _WINDOW,
    },
    "RunStatus": {"run_id": "1f0c5e7a9b", "state": "running"},
    "PendingConfirmations": {
        "confirmations": [
            {
                "confirmation_id": "6f1e2d3c4b5a",
                "tool_name": "delete_file",
                "arguments": {"path": "notes.md"},
                "call_index": 0,
                "agent_name": None,
            }
        ]
    },
    "ToolDecided": {
        "confirmation_id": "6f1e2d3c4b5a",
        "approved": True,
        "tool_name": "delete_file",
        "arguments": {"path": "notes.md"},
    },
    "ToolList": {
        "tools": {"get_current_time": _TOOL},
        "groups": {"utilities": ["get_current_time"]},
        "problems": [{"name": "broken.py", "message": "SyntaxError: invalid syntax (line 3)"}],
    },
    "ToolDetails": _TOOL | {"schema": {"type": "function", "function": _FUNCTION}},
    "ExecutionList": {
        "executions": [
            {name: _CALLED[name] for name in ("tool_name", "success", "result", "error_message", "execution_time")}
            | {"timestamp": _UPDATED}
        ],
        "statistics": _RUNS | {"by_tool": {"get_current_time": _RUNS}},
    },
    "AgentList": {"agents": {"coder": _AGENT}},
    "AgentDetails": _AGENT
    | {
        "system_prompt": "You are an experienced programmer.",
        "tool_details": {"read_file": _READ_FILE},
        "problems": [],
    },
    "AgentChatList": {"sessions": [_CHAT]},
    "AgentChatDetail": _CHAT | {"messages": _CHAT_MESSAGES},
    "PromptFile": {"filename": "helpful.md", "content": "Answer in one sentence."},
    "PromptList": {"prompts": [{"filename": "helpful.md", "preview": "Answer in one sentence.", "word_count": 4}]},
    "SessionFile": {
        "metadata": {key: value for key, value in _SESSION.items() if key not in ("title", "preview")},
        "messages": _MESSAGES,
        "blobs": {},
    },
    "OpenAIModel": _OPENAI_MODEL,
    "OpenAIModelList": {"object": "list", "data": [_OPENAI_MODEL, _OPENAI_MODEL | {"id": "agent:coder"}]},
    "Completion": {
        "id": "chatcmpl-1f0c5e7a9b",
        "object": "chat.completion",
        "created": 1790000000,
        "model": _MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": _ANSWER, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 120, "completion_tokens": 45, "total_tokens": 165},
        "mochi": {"context_window": _WINDOW, "tool_calls_executed": [_CALLED], "notices": []},
    },
}
