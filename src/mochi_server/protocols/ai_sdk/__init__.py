"""The UI message stream of the AI SDK: routes under `/chat/{session_id}/ai-sdk`."""
