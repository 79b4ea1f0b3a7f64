// Types of mochi-server's API, generated from its OpenAPI document. `data` of an event has the type of its parsed JSON.

export interface paths {
    "/api/v1/chat/{session_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Chat
         * @description Send a message and get the complete answer, or the run if the turn runs in the background.
         */
        post: operations["chat"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/chat/{session_id}/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Resume stream
         * @description Resume a stream: get the events of the running or most recent turn, from the beginning or
         *     after an event.
         *
         *     If the run of the event is unknown, get the most recent turn from its beginning, if the server
         *     still has its events.
         */
        get: operations["resume_stream"];
        put?: never;
        /**
         * Stream chat
         * @description Send a message and get the answer as server-sent events.
         */
        post: operations["stream_chat"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/chat/{session_id}/stop": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Stop chat
         * @description Stop the turn and store its partial answer, or deny its tool call that waits for approval.
         *
         *     If the turn has ended, do nothing.
         */
        post: operations["stop_chat"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/chat/{session_id}/run": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get run
         * @description Get the state of the running or most recent turn, also after a restart of the server.
         */
        get: operations["get_run"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/chat/{session_id}/confirmations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List confirmations
         * @description List the tool calls of a session that wait for approval.
         */
        get: operations["list_confirmations"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/chat/{session_id}/confirm-tool": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Confirm tool
         * @description Approve or deny a pending tool call.
         *
         *     After a restart of the server, a decision continues the turn.
         */
        post: operations["confirm_tool"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List sessions
         * @description List or search sessions, the most recently changed first.
         */
        get: operations["list_sessions"];
        put?: never;
        /**
         * Create session
         * @description Create a session.
         *
         *     The response has a warning for each tool, tool group and agent that cannot be used.
         */
        post: operations["create_session"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/import": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Import sessions
         * @description Import a file from this server, ChatGPT, Claude, LibreChat or Open WebUI.
         *
         *     The file is JSON, or the ZIP file of ChatGPT or Claude. Sessions get new IDs. If the file is
         *     invalid, nothing is stored.
         */
        post: operations["import_sessions"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/tags": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List tags
         * @description List the tags of sessions, and how many sessions have each tag.
         */
        get: operations["list_tags"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get session
         * @description Get a session with its messages.
         */
        get: operations["get_session"];
        put?: never;
        post?: never;
        /**
         * Delete session
         * @description Delete a session. If a turn is running, the server stops it first.
         */
        delete: operations["delete_session"];
        options?: never;
        head?: never;
        /**
         * Patch session
         * @description Change the settings of a session, even while a turn is running.
         *
         *     The response can contain warnings.
         */
        patch: operations["patch_session"];
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/fork": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Fork session
         * @description Fork a session: create a new session with the messages up to a given message.
         *
         *     The original does not change.
         */
        post: operations["fork_session"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Export session
         * @description Export a session: as JSON with images and files for an import, or as Markdown.
         */
        get: operations["export_session"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/messages": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List messages
         * @description Get the messages of a session.
         */
        get: operations["list_messages"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/blobs/{sha256}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get blob
         * @description Get an image of a message by its SHA-256.
         */
        get: operations["get_blob"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/files/{sha256}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get file
         * @description Get a file of a message by its SHA-256, as it was sent.
         */
        get: operations["get_file"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/messages/{message_index}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Edit message
         * @description Edit a user message. All later messages are removed. What is replaced becomes a version.
         */
        put: operations["edit_message"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/system-prompt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Set system prompt
         * @description Set or replace the system prompt.
         */
        put: operations["set_system_prompt"];
        post?: never;
        /**
         * Remove system prompt
         * @description Remove the system prompt. If there is none, return 404.
         */
        delete: operations["remove_system_prompt"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/summarize": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Summarize session
         * @description Summarize a session now. A given model becomes the session's `summary_model`.
         */
        post: operations["summarize_session"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/summary": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get summary
         * @description Get the summary of a session. If the session has no summary, the fields are null.
         */
        get: operations["get_summary"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/status": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get status
         * @description Get the state of a session, including its context window.
         */
        get: operations["get_status"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/versions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List versions
         * @description List the versions of a message, the oldest first.
         *
         *     The list includes the messages that are shown.
         */
        get: operations["list_versions"];
        put?: never;
        post?: never;
        /**
         * Delete versions
         * @description Delete the versions of a message. The messages that are shown stay.
         */
        delete: operations["delete_versions"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/versions/{version_id}/select": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Select version
         * @description Show a version: its messages replace the messages at its place, which become a version.
         */
        post: operations["select_version"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/models/test": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Compare models
         * @description Compare up to three models: send one prompt to each in turn. Nothing is stored.
         */
        post: operations["compare_models"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List models
         * @description List the chat models.
         */
        get: operations["list_models"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/models/{model_name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get model
         * @description Get a chat model. Its name may contain slashes and colons. The tag is optional.
         */
        get: operations["get_model"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tools": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List tools
         * @description List the tools, their groups, and the problems of tools that cannot be used.
         */
        get: operations["list_tools"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tools/executions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List executions
         * @description List the last 100 tool calls, with statistics.
         */
        get: operations["list_executions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tools/reload": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Reload tools
         * @description Read the tools directory again and reconnect to its MCP servers.
         */
        post: operations["reload_tools"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tools/{tool_name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get tool
         * @description Get a tool with its JSON schema.
         */
        get: operations["get_tool"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/mcp/servers": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List mcp servers
         * @description List the MCP servers with their states.
         */
        get: operations["list_mcp_servers"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/mcp/servers/{name}/authorize": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Authorize mcp server
         * @description Begin to authorize this server at an MCP server, with OAuth.
         *
         *     A user opens the returned URL in a browser, which then returns to `/api/v1/mcp/callback`.
         */
        post: operations["authorize_mcp_server"];
        /**
         * Forget mcp authorization
         * @description Forget the OAuth tokens of an MCP server, and end its connection.
         */
        delete: operations["forget_mcp_authorization"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/mcp/callback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Finish mcp authorization
         * @description Complete the authorization at an MCP server. The browser of the user sends this request.
         *
         *     Requires no API key. The secret `state` shows that this server has begun the authorization.
         */
        get: operations["finish_mcp_authorization"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/agents": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List agents
         * @description List the agents. Invalid agents have an error message.
         */
        get: operations["list_agents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/agents/reload": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Reload agents
         * @description Read the agents directory again.
         */
        post: operations["reload_agents"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/agents/chats": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List agent chats
         * @description List the sessions of agents, the most recently changed first.
         */
        get: operations["list_agent_chats"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/agents/chats/{session_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get agent chat
         * @description Get a session of an agent with its messages.
         */
        get: operations["get_agent_chat"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/agents/{agent_name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get agent
         * @description Get an agent with its prompt and its tools.
         */
        get: operations["get_agent"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/system-prompts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List prompts
         * @description List the prompt files.
         */
        get: operations["list_prompts"];
        put?: never;
        /**
         * Create prompt
         * @description Create a prompt file.
         */
        post: operations["create_prompt"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/system-prompts/{filename}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get prompt
         * @description Get a prompt file.
         */
        get: operations["get_prompt"];
        /**
         * Update prompt
         * @description Overwrite a prompt file.
         */
        put: operations["update_prompt"];
        post?: never;
        /**
         * Delete prompt
         * @description Delete a prompt file.
         */
        delete: operations["delete_prompt"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/hosts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List hosts
         * @description List the Ollama hosts with their states.
         */
        get: operations["list_hosts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get usage
         * @description Get the tokens that the API key has used, by day and model.
         *
         *     A key of the scope `all` gets those of all keys.
         */
        get: operations["get_usage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get health
         * @description Check the server and its connection to Ollama.
         */
        get: operations["get_health"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health/live": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get live
         * @description Check that the process responds (liveness).
         *
         *     If it does not respond, restart it. Requires no API key.
         */
        get: operations["get_live"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health/ready": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get ready
         * @description Check that new turns are accepted and can be stored (readiness).
         *
         *     Requires neither an API key nor Ollama.
         */
        get: operations["get_ready"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get metrics
         * @description Get the metrics in the text format of Prometheus. `/metrics` returns the same metrics.
         */
        get: operations["get_metrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/chat/{session_id}/ai-sdk": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Chat with AI SDK
         * @description Answer a request of the AI SDK's `useChat`, which contains a message or responses to approval
         *     requests.
         */
        post: operations["chat_with_ai_sdk"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/chat/{session_id}/ai-sdk/{chat_id}/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Resume AI SDK
         * @description Resume the stream of the running turn from its beginning.
         *
         *     The server ignores `chat_id`, the AI SDK's chat ID.
         */
        get: operations["resume_ai_sdk"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/chat/{session_id}/ag-ui": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Chat with AG-UI
         * @description Answer a request of AG-UI's `HttpAgent`: a message, results of tool calls, or answers to
         *     interrupts.
         */
        post: operations["chat_with_ag_ui"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List OpenAI models
         * @description List the models, and the agents as `agent:NAME`.
         *
         *     Models that cannot chat come after the chat models.
         */
        get: operations["list_openai_models"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/models/{model_name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get OpenAI model
         * @description Get a model or an agent. An unknown name returns 404.
         */
        get: operations["get_openai_model"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/chat/completions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create chat completion
         * @description Answer a conversation with one JSON response or a stream.
         *
         *     If the request names no session, nothing is stored.
         */
        post: operations["create_chat_completion"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/completions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create completion
         * @description Answer a prompt with one JSON response or a stream.
         *
         *     The model receives the prompt as a user message.
         */
        post: operations["create_completion"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/embeddings": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create embeddings
         * @description Embed texts as vectors. Ollama computes the vectors.
         */
        post: operations["create_embeddings"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/responses": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create response
         * @description Answer the items of a conversation with one JSON response or a stream of events.
         */
        post: operations["create_response"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/responses/input_tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Count input tokens
         * @description Estimate the tokens of the items of a conversation, without an answer.
         *
         *     The messages of a session are not counted. The estimate improves with each answer of the model.
         */
        post: operations["count_input_tokens"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/responses/{response_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get response
         * @description Get a response: that of a session, or for an hour one without a session.
         */
        get: operations["get_response"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/responses/{response_id}/input_items": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List input items
         * @description List the items before the output of a response, in a session its earlier messages.
         */
        get: operations["list_input_items"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/responses/{response_id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel response
         * @description Cancel a response in the background, and keep its text. If it has ended, return it.
         */
        post: operations["cancel_response"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/messages": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create message
         * @description Answer a conversation with one JSON response or a stream.
         *
         *     If the request names no session, nothing is stored.
         */
        post: operations["create_message"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/messages/count_tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Count message tokens
         * @description Estimate the tokens of a conversation.
         *
         *     The estimate improves with each answer of the model.
         */
        post: operations["count_message_tokens"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/models/test/": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Compare models without prefix
         * @description Compare up to three models: send one prompt to each in turn. Nothing is stored.
         */
        post: operations["compare_models_without_prefix"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * AgUiRequest
         * @description `RunAgentInput` of AG-UI.
         *
         *     Only the last user message after the last answer, and the results of pending calls, are new.
         *     With `resume`, the messages are ignored. Unknown fields are ignored.
         *
         *     `forwardedProps` can contain `think`, `options`, `format`, `keep_alive` and `on_disconnect`.
         * @example {
         *       "messages": [
         *         {
         *           "content": "Hello!",
         *           "id": "m",
         *           "role": "user"
         *         }
         *       ],
         *       "runId": "r",
         *       "threadId": "t"
         *     }
         */
        AgUiRequest: {
            /**
             * Threadid
             * @description ID of the client's conversation. The events repeat it.
             */
            threadId: string;
            /**
             * Runid
             * @description ID of the client's run. The events repeat it.
             */
            runId: string;
            /**
             * Messages
             * @description Messages of the conversation, oldest first.
             */
            messages: {
                [key: string]: unknown;
            }[];
            /**
             * Tools
             * @description Tools that the client runs.
             */
            tools?: ({
                name: string;
                description: string;
                parameters?: Record<string, never> | null;
                metadata?: Record<string, never> | null;
            } & {
                [key: string]: unknown;
            })[] | null;
            /**
             * Context
             * @description Texts that are added to the instructions.
             */
            context?: ({
                description: string;
                value: string;
            } & {
                [key: string]: unknown;
            })[] | null;
            /**
             * Resume
             * @description Decisions for tool calls.
             */
            resume?: ({
                interruptId: string;
                /** @enum {unknown} */
                status: "resolved" | "cancelled";
                metadata?: Record<string, never> | null;
            } & {
                [key: string]: unknown;
            })[] | null;
            /**
             * Forwardedprops
             * @description Options of the turn.
             */
            forwardedProps?: unknown;
        } & {
            [key: string]: unknown;
        };
        /**
         * AgentChat
         * @description A session of an agent, without its messages.
         */
        AgentChat: {
            /** Session Id */
            session_id: string;
            /** Model */
            model: string;
            /** Created At */
            created_at: string;
            /** Updated At */
            updated_at: string;
            /** Message Count */
            message_count: number;
            /** Title */
            title: string | null;
            /** Preview */
            preview: string;
            /** Summary */
            summary: {
                summary: string;
                topics: string[];
            } | null;
            /** Summary Model */
            summary_model: string | null;
            /** Format Version */
            format_version: string;
            tool_settings: components["schemas"]["ToolSettings"];
            agent_settings: components["schemas"]["AgentSettings"];
            /**
             * Context Window Config
             * @description Context window of the session, in tokens, and its latest changes.
             */
            context_window_config: {
                dynamic_enabled: boolean;
                current_window: number | null;
                last_adjustment: string | null;
                adjustment_history: Record<string, never>[];
                manual_override: boolean;
            };
            /** Options */
            options: {
                [key: string]: unknown;
            } | null;
            /** Keep Alive */
            keep_alive: string | number | null;
            /** Think */
            think: boolean | string | null;
            /** Format */
            format: string | {
                [key: string]: unknown;
            } | null;
            /** Ollama Host */
            ollama_host: string | null;
            /** Tags */
            tags: string[];
            /** Pinned */
            pinned: boolean;
            /** Archived */
            archived: boolean;
            /** Temporary */
            temporary: boolean;
            /** Expires At */
            expires_at: string | null;
            /** Owner */
            owner?: string | null;
            /** Agent Name */
            agent_name?: string | null;
        };
        /**
         * AgentChatDetail
         * @description A session of an agent, with its messages.
         */
        AgentChatDetail: {
            /** Session Id */
            session_id: string;
            /** Model */
            model: string;
            /** Created At */
            created_at: string;
            /** Updated At */
            updated_at: string;
            /** Message Count */
            message_count: number;
            /** Title */
            title: string | null;
            /** Preview */
            preview: string;
            /** Summary */
            summary: {
                summary: string;
                topics: string[];
            } | null;
            /** Summary Model */
            summary_model: string | null;
            /** Format Version */
            format_version: string;
            tool_settings: components["schemas"]["ToolSettings"];
            agent_settings: components["schemas"]["AgentSettings"];
            /**
             * Context Window Config
             * @description Context window of the session, in tokens, and its latest changes.
             */
            context_window_config: {
                dynamic_enabled: boolean;
                current_window: number | null;
                last_adjustment: string | null;
                adjustment_history: Record<string, never>[];
                manual_override: boolean;
            };
            /** Options */
            options: {
                [key: string]: unknown;
            } | null;
            /** Keep Alive */
            keep_alive: string | number | null;
            /** Think */
            think: boolean | string | null;
            /** Format */
            format: string | {
                [key: string]: unknown;
            } | null;
            /** Ollama Host */
            ollama_host: string | null;
            /** Tags */
            tags: string[];
            /** Pinned */
            pinned: boolean;
            /** Archived */
            archived: boolean;
            /** Temporary */
            temporary: boolean;
            /** Expires At */
            expires_at: string | null;
            /** Messages */
            messages: components["schemas"]["StoredMessage"][];
            /**
             * Versions
             * @description Number of versions by message ID, for the messages that have versions.
             */
            versions: {
                [key: string]: components["schemas"]["VersionCount"];
            };
            /** Agent Name */
            agent_name?: string | null;
        };
        /**
         * AgentChatList
         * @description Sessions of agents, the most recently changed first.
         */
        AgentChatList: {
            /** Sessions */
            sessions: components["schemas"]["AgentChat"][];
        };
        /**
         * @description The agent ended.
         *
         *     `output` is the complete answer. The calling model may receive only its beginning.
         */
        AgentComplete: {
            agent_name: string;
            session_id: string | null;
            output: string;
            success: boolean;
            error_code: string | null;
            agent_session_id: string | null;
            parent_call_id: string;
        };
        /**
         * @description `agent_complete`: The agent ended.
         *
         *     `output` is the complete answer. The calling model may receive only its beginning.
         */
        AgentCompleteEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "agent_complete";
            data: components["schemas"]["AgentComplete"];
        };
        /**
         * AgentDetails
         * @description An agent with its prompt and its tools. ``problems`` lists the tools that cannot be used.
         */
        AgentDetails: {
            /** Name */
            name: string;
            /** Description */
            description: string;
            /** Model */
            model: string | null;
            /** Valid */
            valid: boolean;
            /** Error Message */
            error_message: string | null;
            /** Tool Count */
            tool_count: number;
            /** Tools */
            tools: string[];
            /** System Prompt */
            system_prompt: string;
            /** Tool Details */
            tool_details: {
                [key: string]: components["schemas"]["ToolSummary"];
            };
            /** Problems */
            problems: components["schemas"]["ToolProblem"][];
        };
        /**
         * @description A piece of the agent's answer while it executes its plan.
         *
         *     An event with empty `content` means that the agent only announced its next step. Another
         *     answer follows.
         */
        AgentExecution: {
            content: string;
            agent_name: string;
            agent_session_id: string;
            parent_call_id: string;
        };
        /**
         * @description `agent_execution`: A piece of the agent's answer while it executes its plan.
         *
         *     An event with empty `content` means that the agent only announced its next step. Another
         *     answer follows.
         */
        AgentExecutionEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "agent_execution";
            data: components["schemas"]["AgentExecution"];
        };
        /**
         * AgentList
         * @description All agents, including invalid ones. ``agents`` maps each name to an agent.
         */
        AgentList: {
            /** Agents */
            agents: {
                [key: string]: components["schemas"]["AgentSummary"];
            };
        };
        /** @description A piece of the agent's plan. */
        AgentPlanning: {
            content: string;
            agent_name: string;
            agent_session_id: string;
            parent_call_id: string;
        };
        /** @description `agent_planning`: A piece of the agent's plan. */
        AgentPlanningEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "agent_planning";
            data: components["schemas"]["AgentPlanning"];
        };
        /**
         * AgentSettings
         * @description Agents that a session may call.
         */
        AgentSettings: {
            /** Enabled Agents */
            enabled_agents?: string[];
            /** Selection Metadata */
            selection_metadata?: {
                [key: string]: unknown;
            } | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * AgentSettingsRequest
         * @description Agents that the model may call.
         */
        AgentSettingsRequest: {
            /** Enabled Agents */
            enabled_agents?: string[];
            /** Selection Metadata */
            selection_metadata?: {
                [key: string]: unknown;
            } | null;
        };
        /** @description The model called an agent. `agent_session_id` is null if the agent could not start. */
        AgentStart: {
            agent_name: string;
            instruction: string;
            agent_session_id: string | null;
            parent_call_id: string;
        };
        /** @description `agent_start`: The model called an agent. `agent_session_id` is null if the agent could not start. */
        AgentStartEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "agent_start";
            data: components["schemas"]["AgentStart"];
        };
        /**
         * AgentSummary
         * @description An agent. If it is invalid, ``error_message`` names the file and the problem.
         */
        AgentSummary: {
            /** Name */
            name: string;
            /** Description */
            description: string;
            /** Model */
            model: string | null;
            /** Valid */
            valid: boolean;
            /** Error Message */
            error_message: string | null;
            /** Tool Count */
            tool_count: number;
            /** Tools */
            tools: string[];
        };
        /**
         * @description The agent starts a tool call.
         *
         *     A call that waited for approval starts after its approval, so a denied call has no such event.
         *
         *     `call_index` numbers the calls of one agent run, starting at 0.
         */
        AgentToolCalled: {
            agent_name: string;
            tool_name: string;
            arguments: {
                [key: string]: unknown;
            };
            call_index: number;
            agent_session_id: string;
            parent_call_id: string;
        };
        /**
         * @description `agent_tool_call`: The agent starts a tool call.
         *
         *     A call that waited for approval starts after its approval, so a denied call has no such event.
         *
         *     `call_index` numbers the calls of one agent run, starting at 0.
         */
        AgentToolCalledEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "agent_tool_call";
            data: components["schemas"]["AgentToolCalled"];
        };
        /** @description The result of a tool call of the agent. */
        AgentToolResult: {
            agent_name: string;
            tool_name: string;
            success: boolean;
            result: string | null;
            error_message: string | null;
            error_code: string | null;
            call_index: number;
            agent_session_id: string;
            parent_call_id: string;
        };
        /** @description `agent_tool_result`: The result of a tool call of the agent. */
        AgentToolResultEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "agent_tool_result";
            data: components["schemas"]["AgentToolResult"];
        };
        /**
         * AiSdkRequest
         * @description Request that `useChat` sends.
         *
         *     Only the last message is new. The session already has the earlier messages. To set
         *     options of the turn, such as `think`, use the `body` option of the AI SDK. Unknown fields are
         *     ignored.
         * @example {
         *       "messages": [
         *         {
         *           "parts": [
         *             {
         *               "text": "Hello!",
         *               "type": "text"
         *             }
         *           ],
         *           "role": "user"
         *         }
         *       ]
         *     }
         */
        AiSdkRequest: {
            /**
             * Think
             * @description Reasoning of models that can think: on, off or a level.
             */
            think?: boolean | ("low" | "medium" | "high" | "max") | null;
            /**
             * Options
             * @description Ollama's options. They override the session's options.
             */
            options?: {
                num_keep?: number | null;
                seed?: number | null;
                num_predict?: number | null;
                top_k?: number | null;
                top_p?: number | null;
                min_p?: number | null;
                typical_p?: number | null;
                repeat_last_n?: number | null;
                temperature?: number | null;
                repeat_penalty?: number | null;
                presence_penalty?: number | null;
                frequency_penalty?: number | null;
                stop?: string[] | null;
            } | null;
            /**
             * Format
             * @description Format of the answer: `json` or a JSON schema.
             */
            format?: "json" | {
                [key: string]: unknown;
            } | null;
            /**
             * Keep Alive
             * @description How long Ollama keeps the model loaded.
             */
            keep_alive?: string | number | null;
            /**
             * On Disconnect
             * @description `cancel` ends the turn when its last client disconnects. `continue` does not.
             * @default cancel
             */
            on_disconnect?: ("cancel" | "continue") | null;
            /**
             * Messages
             * @description Messages of the chat, oldest first.
             */
            messages: components["schemas"]["UiMessage"][];
            /**
             * Trigger
             * @description Kind of request.
             * @default submit-message
             * @enum {string}
             */
            trigger?: "submit-message" | "regenerate-message";
            /**
             * Messageid
             * @description The last user message, to replace it.
             */
            messageId?: string | null;
        };
        /**
         * Alive
         * @description The process responds.
         */
        Alive: {
            /**
             * Status
             * @default alive
             * @constant
             */
            status?: "alive";
        };
        /**
         * AllExecutionStatistics
         * @description Statistics of all listed tool calls, and of each tool.
         */
        AllExecutionStatistics: {
            /** Total */
            total: number;
            /** Succeeded */
            succeeded: number;
            /** Failed */
            failed: number;
            /** Mean Seconds */
            mean_seconds: number;
            /** By Tool */
            by_tool: {
                [key: string]: components["schemas"]["ExecutionStatistics"];
            };
        };
        /**
         * AllowedFunctions
         * @description The functions that the model may call. With the mode `required`, it must call one of them.
         */
        AllowedFunctions: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "allowed_tools";
            /**
             * Mode
             * @enum {string}
             */
            mode: "auto" | "required";
            /** Tools */
            tools: components["schemas"]["NamedFunction"][];
        };
        /**
         * AllowedList
         * @description The tools that the model may call. With the mode `required`, it must call one of them.
         */
        AllowedList: {
            /**
             * Mode
             * @enum {string}
             */
            mode: "auto" | "required";
            /** Tools */
            tools: components["schemas"]["NamedTool"][];
        };
        /**
         * AllowedTools
         * @description Limit on the tools that the model may call.
         *
         *     The server does not offer any other tool to the model.
         */
        AllowedTools: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "allowed_tools";
            allowed_tools: components["schemas"]["AllowedList"];
        };
        /**
         * AnthropicAssistantMessage
         * @description A message of the model. An answer of this server can have no blocks.
         */
        AnthropicAssistantMessage: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            role: "assistant";
            /** Content */
            content: string | (components["schemas"]["TextPart"] | components["schemas"]["ToolUseBlock"] | components["schemas"]["ThinkingBlock"] | components["schemas"]["ToolReferenceBlock"] | components["schemas"]["ServerToolBlock"])[];
        };
        /**
         * AnthropicError
         * @description Error with a `type` for programs and a `message`.
         */
        AnthropicError: {
            /** Type */
            type: string;
            /** Message */
            message: string;
            /**
             * Details
             * @description Only for a request with `thread`: why the client must repeat it without.
             */
            details?: {
                [key: string]: unknown;
            } | null;
        };
        /**
         * AnthropicErrorEnvelope
         * @description Response body of every error under `/v1/messages`.
         */
        AnthropicErrorEnvelope: {
            /**
             * Type
             * @constant
             */
            type: "error";
            error: components["schemas"]["AnthropicError"];
            /** Request Id */
            request_id: string;
        };
        /**
         * AnthropicSystemMessage
         * @description Instructions for the model. In a session, they apply only to this request.
         */
        AnthropicSystemMessage: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            role: "system";
            /** Content */
            content: string | components["schemas"]["TextPart"][];
        };
        /**
         * AnthropicUserMessage
         * @description A message of the user, or results of tool calls.
         */
        AnthropicUserMessage: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            role: "user";
            /** Content */
            content: string | (components["schemas"]["TextPart"] | components["schemas"]["ImageBlock"] | components["schemas"]["DocumentBlock"] | components["schemas"]["SearchResultBlock"] | components["schemas"]["ToolReferenceBlock"] | components["schemas"]["ToolResultBlock"] | components["schemas"]["ServerToolBlock"])[];
        };
        /**
         * AssistantMessage
         * @description A message of the model.
         */
        AssistantMessage: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            role: "assistant";
            /** Content */
            content?: (string | (components["schemas"]["TextPart"] | components["schemas"]["RefusalPart"])[]) | null;
            /** Refusal */
            refusal?: string | null;
            /** Reasoning Content */
            reasoning_content?: string | null;
            /** Reasoning */
            reasoning?: string | null;
            /** Tool Calls */
            tool_calls?: components["schemas"]["Call"][] | null;
            /**
             * Function Call
             * @description Not supported. Use `tool_calls`.
             */
            function_call?: unknown;
            /**
             * Audio
             * @description Not supported.
             */
            audio?: unknown;
        };
        /**
         * AttachmentIn
         * @description A file with text, or a PDF. The model receives its text before the message.
         */
        AttachmentIn: {
            /** Name */
            name: string;
            /**
             * Media Type
             * @description Media type, also with `charset`. The data URL can contain it instead.
             */
            media_type?: string | null;
            /**
             * Data
             * @description Bytes of the file, as base64 or as a data URL.
             */
            data: string;
        };
        /**
         * AttachmentReference
         * @description A file of a message, with the number of ``characters`` that the model reads.
         *
         *     ``sha256`` is the hash of its bytes and ``text_sha256`` that of its text, in hex. A text file in
         *     UTF-8 is its own text. Its bytes are at ``files/{sha256}``.
         */
        AttachmentReference: {
            /** Name */
            name: string;
            /** Media Type */
            media_type: string;
            /** Size */
            size: number;
            /** Sha256 */
            sha256: string;
            /** Text Sha256 */
            text_sha256: string;
            /** Characters */
            characters: number;
        } & {
            [key: string]: unknown;
        };
        /**
         * BuiltInCall
         * @description A call of a tool of OpenAI that the client ran, such as `local_shell`.
         */
        BuiltInCall: {
            /**
             * Type
             * @enum {string}
             */
            type: "local_shell_call" | "shell_call" | "apply_patch_call" | "tool_search_call";
            /** Call Id */
            call_id: string;
            /** Namespace */
            namespace?: null;
        } & {
            [key: string]: unknown;
        };
        /**
         * BuiltInCallOutput
         * @description The result of a call of a tool of OpenAI that the client ran.
         */
        BuiltInCallOutput: {
            /**
             * Type
             * @enum {string}
             */
            type: "local_shell_call_output" | "shell_call_output" | "apply_patch_call_output" | "tool_search_output";
            /** Call Id */
            call_id: string;
            /** Output */
            output?: unknown;
        } & {
            [key: string]: unknown;
        };
        /**
         * Call
         * @description A tool call of the model.
         */
        Call: {
            /** Id */
            id: string;
            /**
             * Type
             * @default function
             * @constant
             */
            type?: "function";
            function: components["schemas"]["Function"];
        };
        /**
         * CalledFunction
         * @description Function of a tool call. ``arguments`` is JSON text.
         */
        CalledFunction: {
            /** Name */
            name: string;
            /** Arguments */
            arguments: string;
        };
        /**
         * CalledTool
         * @description A tool call for the client to run.
         */
        CalledTool: {
            /** Id */
            id: string;
            /**
             * Type
             * @constant
             */
            type: "function";
            function: components["schemas"]["CalledFunction"];
        };
        /** ChatGPTAuthor */
        ChatGPTAuthor: {
            /**
             * Role
             * @enum {string}
             */
            role: "system" | "user" | "assistant" | "tool";
        } & {
            [key: string]: unknown;
        };
        /**
         * ChatGPTChat
         * @description Conversation of a ChatGPT export. Times are in Unix seconds.
         *
         *     ``current_node`` is the last message of the shown branch.
         */
        ChatGPTChat: {
            /** Mapping */
            mapping: {
                [key: string]: components["schemas"]["ChatGPTNode"];
            };
            /**
             * Current Node
             * @default null
             */
            current_node?: string | null;
            /**
             * Title
             * @default null
             */
            title?: string | null;
            /**
             * Create Time
             * @default null
             */
            create_time?: number | null;
            /**
             * Update Time
             * @default null
             */
            update_time?: number | null;
            /**
             * Default Model Slug
             * @default null
             */
            default_model_slug?: string | null;
            /**
             * Is Starred
             * @default null
             */
            is_starred?: unknown;
            /**
             * Is Archived
             * @default null
             */
            is_archived?: unknown;
        } & {
            [key: string]: unknown;
        };
        /**
         * ChatGPTContent
         * @description Content of a message. Its fields depend on ``content_type``, such as `text` or `code`.
         */
        ChatGPTContent: {
            /** Content Type */
            content_type: string;
            /**
             * Parts
             * @default null
             */
            parts?: (string | {
                [key: string]: unknown;
            } | null)[] | null;
            /**
             * Text
             * @default null
             */
            text?: string | null;
            /**
             * Language
             * @default null
             */
            language?: string | null;
            /**
             * Thoughts
             * @default null
             */
            thoughts?: {
                [key: string]: unknown;
            }[] | null;
        } & {
            [key: string]: unknown;
        };
        /** ChatGPTMessage */
        ChatGPTMessage: {
            author: components["schemas"]["ChatGPTAuthor"];
            content: components["schemas"]["ChatGPTContent"];
            /**
             * Create Time
             * @default null
             */
            create_time?: number | null;
            /**
             * Recipient
             * @default null
             */
            recipient?: string | null;
            /** @default null */
            metadata?: components["schemas"]["ChatGPTMetadata"] | null;
        } & {
            [key: string]: unknown;
        };
        /** ChatGPTMetadata */
        ChatGPTMetadata: {
            /**
             * Model Slug
             * @default null
             */
            model_slug?: string | null;
            /**
             * Attachments
             * @default null
             */
            attachments?: {
                [key: string]: unknown;
            }[] | null;
            /**
             * Is Visually Hidden From Conversation
             * @default null
             */
            is_visually_hidden_from_conversation?: boolean | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * ChatGPTNode
         * @description Node of the tree. ``parent`` is the ID of another node.
         */
        ChatGPTNode: {
            /** @default null */
            message?: components["schemas"]["ChatGPTMessage"] | null;
            /**
             * Parent
             * @default null
             */
            parent?: string | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * ChatRequest
         * @description A message and its options.
         *
         *     If there is no message, the model answers the last user message again.
         * @example {
         *       "message": "What is the capital of France?"
         *     }
         */
        ChatRequest: {
            /**
             * Message
             * @description Without it, the last user message is answered again.
             */
            message?: string | null;
            /**
             * Think
             * @description Reasoning of models that can think: on, off or a level.
             */
            think?: boolean | ("low" | "medium" | "high" | "max") | null;
            /**
             * Options
             * @description Ollama's options, which override the session's options.
             */
            options?: {
                num_keep?: number | null;
                seed?: number | null;
                num_predict?: number | null;
                top_k?: number | null;
                top_p?: number | null;
                min_p?: number | null;
                typical_p?: number | null;
                repeat_last_n?: number | null;
                temperature?: number | null;
                repeat_penalty?: number | null;
                presence_penalty?: number | null;
                frequency_penalty?: number | null;
                stop?: string[] | null;
            } | null;
            /**
             * Format
             * @description Format of the answer: `json` or a JSON schema.
             */
            format?: "json" | {
                [key: string]: unknown;
            } | null;
            /**
             * Keep Alive
             * @description How long Ollama keeps the model loaded: seconds, or a duration such as `5m`.
             */
            keep_alive?: string | number | null;
            /**
             * Images
             * @description PNG, JPEG, WebP, GIF or BMP, as base64 or as data URLs.
             */
            images?: string[] | null;
            /**
             * Attachments
             * @description Files that the model reads: text of any kind, and PDF.
             */
            attachments?: components["schemas"]["AttachmentIn"][] | null;
            /**
             * If Busy
             * @description While a turn runs: return 409, or wait.
             * @default reject
             */
            if_busy?: ("reject" | "wait") | null;
            /**
             * If Waiting
             * @description While tool calls wait for approval: return 409, or deny them and send the message.
             * @default reject
             */
            if_waiting?: ("reject" | "deny") | null;
            /**
             * On Disconnect
             * @description `cancel` ends the turn when its last client disconnects. `continue` does not.
             * @default cancel
             */
            on_disconnect?: ("cancel" | "continue") | null;
            /**
             * Background
             * @description Without streaming: return 202 when the turn starts. The turn needs no client.
             * @default false
             */
            background?: boolean | null;
            /**
             * Wait For Confirmation
             * @description Without streaming: wait for approval of tool calls.
             * @default false
             */
            wait_for_confirmation?: boolean | null;
        };
        /**
         * ChatResponse
         * @description The stored answer. ``message`` is null if the turn was stopped before the first token.
         */
        ChatResponse: {
            /** Session Id */
            session_id: string;
            /**
             * State
             * @description `stopped`: `message` is partial.
             * @enum {string}
             */
            state: "completed" | "stopped" | "cancelled";
            /** Message */
            message: components["schemas"]["StoredMessage"] | null;
            /** Tool Calls Executed */
            tool_calls_executed: components["schemas"]["ToolCallExecuted"][];
            context_window: components["schemas"]["ContextWindow"];
            /** @description What the prompt of the answer leaves out, as in the event of this name. */
            context_compacted: components["schemas"]["ContextCompacted"] | null;
            /**
             * Warnings
             * @description The warnings that a stream would have sent.
             */
            warnings: components["schemas"]["WarningOut"][];
        };
        /** @description Event of a turn. `data` is JSON. New events may be added. */
        ChatStreamEvent: components["schemas"]["ContentDeltaEvent"] | components["schemas"]["ThinkingDeltaEvent"] | components["schemas"]["TokenLogprobsEvent"] | components["schemas"]["ToolCalledEvent"] | components["schemas"]["ToolConfirmationRequiredEvent"] | components["schemas"]["ToolResultEvent"] | components["schemas"]["ToolContinuationStartEvent"] | components["schemas"]["AgentStartEvent"] | components["schemas"]["AgentPlanningEvent"] | components["schemas"]["AgentExecutionEvent"] | components["schemas"]["AgentToolCalledEvent"] | components["schemas"]["AgentToolResultEvent"] | components["schemas"]["AgentCompleteEvent"] | components["schemas"]["MessageCompleteEvent"] | components["schemas"]["StatusEvent"] | components["schemas"]["SnapshotEvent"] | components["schemas"]["ContextCompactedEvent"] | components["schemas"]["TurnWarningEvent"] | components["schemas"]["TurnErrorEvent"] | components["schemas"]["StoppedEvent"] | components["schemas"]["DoneEvent"];
        /**
         * ChatTemplateOptions
         * @description Options of the model's chat template. ``thinking`` is another name of ``enable_thinking``.
         *
         *     Other keys are ignored, with a notice.
         */
        ChatTemplateOptions: {
            /** Enable Thinking */
            enable_thinking?: boolean | null;
            /** Thinking */
            thinking?: boolean | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * Choice
         * @description The answer of a completion. A completion has exactly one choice.
         */
        Choice: {
            /** Index */
            index: number;
            message: components["schemas"]["CompletionMessage"];
            logprobs: components["schemas"]["ChoiceLogprobs"] | null;
            /**
             * Finish Reason
             * @enum {string}
             */
            finish_reason: "stop" | "length" | "tool_calls";
        };
        /**
         * ChoiceLogprobs
         * @description Log probabilities of the tokens of the answer, if the request sets ``logprobs``.
         */
        ChoiceLogprobs: {
            /** Content */
            content: {
                [key: string]: unknown;
            }[];
            /** Refusal */
            refusal: null;
        };
        /** ClaudeAttachment */
        ClaudeAttachment: {
            /**
             * File Name
             * @default null
             */
            file_name?: string | null;
            /**
             * Extracted Content
             * @default null
             */
            extracted_content?: string | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * ClaudeBlock
         * @description Block of a message. Its fields depend on ``type``.
         */
        ClaudeBlock: {
            /** Type */
            type: string;
            /**
             * Text
             * @default null
             */
            text?: string | null;
            /**
             * Thinking
             * @default null
             */
            thinking?: string | null;
            /**
             * Name
             * @default null
             */
            name?: string | null;
            /**
             * Input
             * @default null
             */
            input?: unknown;
            /**
             * Source
             * @default null
             */
            source?: unknown;
        } & {
            [key: string]: unknown;
        };
        /**
         * ClaudeChat
         * @description Conversation of a Claude export.
         *
         *     ``current_leaf_message_uuid`` is the last message of the shown branch, by default the last of
         *     the list.
         */
        ClaudeChat: {
            /** Chat Messages */
            chat_messages: components["schemas"]["ClaudeMessage"][];
            /**
             * Name
             * @default null
             */
            name?: string | null;
            /**
             * Model
             * @default null
             */
            model?: string | null;
            /**
             * Created At
             * @default null
             */
            created_at?: string | null;
            /**
             * Updated At
             * @default null
             */
            updated_at?: string | null;
            /**
             * Current Leaf Message Uuid
             * @default null
             */
            current_leaf_message_uuid?: string | null;
            /**
             * Is Starred
             * @default null
             */
            is_starred?: unknown;
        } & {
            [key: string]: unknown;
        };
        /**
         * ClaudeMessage
         * @description Message. ``text`` is used without ``content``, or if a user's ``content`` has no text.
         */
        ClaudeMessage: {
            /** Uuid */
            uuid: string;
            /**
             * Sender
             * @enum {string}
             */
            sender: "human" | "assistant";
            /**
             * Text
             * @default null
             */
            text?: string | null;
            /**
             * Content
             * @default null
             */
            content?: components["schemas"]["ClaudeBlock"][] | null;
            /**
             * Created At
             * @default null
             */
            created_at?: string | null;
            /**
             * Attachments
             * @default null
             */
            attachments?: components["schemas"]["ClaudeAttachment"][] | null;
            /**
             * Files
             * @default null
             */
            files?: ({
                [key: string]: unknown;
            } | string)[] | null;
            /**
             * Parent Message Uuid
             * @default null
             */
            parent_message_uuid?: string | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * ClientTool
         * @description A tool that the client runs.
         */
        ClientTool: {
            /**
             * Type
             * @constant
             */
            type: "function";
            function: components["schemas"]["FunctionTool"];
        };
        /**
         * @description Complete response of a model. Times are in milliseconds. Token counts come from Ollama.
         *
         *     The first chunks may contain text that turned out to be thinking. `response` does not.
         */
        CompareAnswered: {
            modelId: string;
            response: string;
            inputTokens: number | null;
            outputTokens: number | null;
            firstTokenMs: number | null;
            totalMs: number;
            tokensPerSecond: number | null;
        };
        /**
         * @description `done`: Complete response of a model. Times are in milliseconds. Token counts come from Ollama.
         *
         *     The first chunks may contain text that turned out to be thinking. `response` does not.
         */
        CompareAnsweredEvent: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "done";
            data: components["schemas"]["CompareAnswered"];
        };
        /** @description Part of a model's response. */
        CompareChunk: {
            modelId: string;
            delta: string;
        };
        /** @description `chunk`: Part of a model's response. */
        CompareChunkEvent: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "chunk";
            data: components["schemas"]["CompareThinkingChunk"] | components["schemas"]["CompareChunk"];
        };
        /** @description Last event: all models have completed or failed. */
        CompareComplete: {
            message: string;
        };
        /** @description `complete`: Last event: all models have completed or failed. */
        CompareCompleteEvent: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "complete";
            data: components["schemas"]["CompareComplete"];
        };
        /** @description Event: the model has completed its response. */
        CompareEnd: {
            modelId: string;
        };
        /** @description `end`: Event: the model has completed its response. */
        CompareEndEvent: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "end";
            data: components["schemas"]["CompareEnd"];
        };
        /** @description Event: the model has failed. The server sends no further events for this model. */
        CompareFailed: {
            modelId: string;
            error: string;
        };
        /** @description `error`: Event: the model has failed. The server sends no further events for this model. */
        CompareFailedEvent: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "error";
            data: components["schemas"]["CompareFailed"];
        };
        /** @description Name and provider of the model that answers next. */
        CompareMetadata: {
            modelId: string;
            modelName: string;
            provider: string;
        };
        /** @description `metadata`: Name and provider of the model that answers next. */
        CompareMetadataEvent: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "metadata";
            data: components["schemas"]["CompareMetadata"];
        };
        /**
         * CompareRequest
         * @description One prompt for one to three models.
         *
         *     Each model is a name, or a position in the list of models, starting at 1.
         * @example {
         *       "message": "What is the capital of France?",
         *       "modelIds": [
         *         "qwen3:14b",
         *         2
         *       ]
         *     }
         */
        CompareRequest: {
            /**
             * Modelids
             * @description Names of models, or their positions in the list of models, starting at 1.
             */
            modelIds: (string | number)[];
            /**
             * Message
             * @description Message to each model.
             */
            message: string;
            /**
             * Systemprompt
             * @description System message.
             */
            systemPrompt?: string | null;
            /**
             * Chathistory
             * @description Earlier messages of the conversation.
             */
            chatHistory?: components["schemas"]["HistoryMessage"][] | null;
            /**
             * Think
             * @description Reasoning of models that can think: on, off or a level.
             */
            think?: boolean | ("low" | "medium" | "high" | "max") | null;
            /**
             * Options
             * @description Ollama's options, such as `temperature` or `seed`.
             */
            options?: {
                num_keep?: number | null;
                seed?: number | null;
                num_predict?: number | null;
                top_k?: number | null;
                top_p?: number | null;
                min_p?: number | null;
                typical_p?: number | null;
                repeat_last_n?: number | null;
                temperature?: number | null;
                repeat_penalty?: number | null;
                presence_penalty?: number | null;
                frequency_penalty?: number | null;
                stop?: string[] | null;
            } | null;
        };
        /** @description Event: the server sends the request to the model. */
        CompareStart: {
            modelId: string;
        };
        /** @description `start`: Event: the server sends the request to the model. */
        CompareStartEvent: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "start";
            data: components["schemas"]["CompareStart"];
        };
        /** @description Event of a comparison. `data` is JSON. */
        CompareStreamEvent: components["schemas"]["CompareMetadataEvent"] | components["schemas"]["CompareStartEvent"] | components["schemas"]["CompareChunkEvent"] | components["schemas"]["CompareEndEvent"] | components["schemas"]["CompareAnsweredEvent"] | components["schemas"]["CompareFailedEvent"] | components["schemas"]["CompareCompleteEvent"];
        /** @description Part of a model's thinking, which is not part of the response. */
        CompareThinkingChunk: {
            modelId: string;
            delta: string;
            kind: string;
        };
        /**
         * Completion
         * @description A complete answer.
         */
        Completion: {
            /** Id */
            id: string;
            /** Created */
            created: number;
            /** Model */
            model: string;
            usage: components["schemas"]["Usage"];
            mochi: components["schemas"]["MochiExtension"];
            /**
             * Object
             * @constant
             */
            object: "chat.completion";
            /** Choices */
            choices: components["schemas"]["Choice"][];
        };
        /**
         * CompletionMessage
         * @description The answer.
         *
         *     If the model reasoned, ``reasoning_content`` and ``reasoning`` both contain the same reasoning.
         */
        CompletionMessage: {
            /**
             * Role
             * @constant
             */
            role: "assistant";
            /** Content */
            content: string | null;
            /** Refusal */
            refusal: string | null;
            /** Reasoning Content */
            reasoning_content?: string | null;
            /** Reasoning */
            reasoning?: string | null;
            /** Tool Calls */
            tool_calls?: components["schemas"]["CalledTool"][] | null;
        };
        /**
         * CompletionRequest
         * @description A conversation to answer. A null field counts as absent. Unknown fields are ignored.
         * @example {
         *       "messages": [
         *         {
         *           "content": "Hello!",
         *           "role": "user"
         *         }
         *       ],
         *       "model": "qwen3:14b"
         *     }
         */
        CompletionRequest: {
            /**
             * Model
             * @description Model of Ollama, or `agent:NAME`.
             */
            model: string;
            /**
             * Stream
             * @description Stream the answer.
             */
            stream?: boolean | null;
            /** @description `session_id` is the session of the turn. */
            metadata?: components["schemas"]["Metadata"] | null;
            /**
             * Temperature
             * @description Sampling temperature.
             */
            temperature?: number | null;
            /**
             * Top P
             * @description Nucleus sampling: cumulative probability of candidates.
             */
            top_p?: number | null;
            /**
             * Frequency Penalty
             * @description Penalty for frequent tokens.
             */
            frequency_penalty?: number | null;
            /**
             * Presence Penalty
             * @description Penalty for tokens that already occurred.
             */
            presence_penalty?: number | null;
            /**
             * Seed
             * @description The same seed and request give the same answer.
             */
            seed?: number | null;
            /**
             * Stop
             * @description Stop sequences. The answer ends before them.
             */
            stop?: string | string[] | null;
            /**
             * Top K
             * @description Number of candidates for the next token. Not in OpenAI's API.
             */
            top_k?: number | null;
            /**
             * Min P
             * @description Minimum probability of candidates. Not in OpenAI's API.
             */
            min_p?: number | null;
            /**
             * Repeat Penalty
             * @description Penalty. Not in OpenAI's API.
             */
            repeat_penalty?: number | null;
            /**
             * Reasoning Effort
             * @description Level of reasoning of a model that can think.
             */
            reasoning_effort?: ("none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "ultra" | "max") | null;
            /** @description `effort` overrides `reasoning_effort`. */
            reasoning?: components["schemas"]["ReasoningOptions"] | null;
            /**
             * Think
             * @description Ollama's name of `reasoning_effort`, which overrides it.
             */
            think?: boolean | ("none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "ultra" | "max") | null;
            /** @description `enable_thinking` applies if no other field sets the level of reasoning. */
            chat_template_kwargs?: components["schemas"]["ChatTemplateOptions"] | null;
            /**
             * Keep Alive
             * @description How long Ollama keeps the model loaded: seconds, or a duration such as `5m`.
             */
            keep_alive?: string | number | null;
            /**
             * Options
             * @description Only `{}` is supported. Use the fields of this request.
             */
            options?: unknown;
            /**
             * Num Ctx
             * @description Not supported. The server sets the context window.
             */
            num_ctx?: unknown;
            /**
             * N
             * @description Only 1 is supported.
             */
            n?: number | null;
            /**
             * Logit Bias
             * @description Only `{}` is supported.
             */
            logit_bias?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format
             * @description Not supported.
             */
            format?: unknown;
            /**
             * Messages
             * @description The conversation; in a session, its new messages.
             */
            messages: (components["schemas"]["SystemMessage"] | components["schemas"]["UserMessage"] | components["schemas"]["AssistantMessage"] | components["schemas"]["ToolMessage"])[];
            /** @description `include_usage` adds a chunk with token counts. */
            stream_options?: components["schemas"]["StreamOptions"] | null;
            /**
             * Tools
             * @description Tools that the client runs.
             */
            tools?: components["schemas"]["ClientTool"][] | null;
            /**
             * Tool Choice
             * @description Whether the model may or must call a tool. It is enforced for the first answer of the turn.
             */
            tool_choice?: (("none" | "auto" | "required") | (components["schemas"]["NamedTool"] | components["schemas"]["AllowedTools"])) | null;
            /**
             * Parallel Tool Calls
             * @description If `false`, each answer calls one tool at most. The server drops further calls.
             */
            parallel_tool_calls?: boolean | null;
            /**
             * Response Format
             * @description Text, any JSON object, or JSON that matches a schema.
             */
            response_format?: (components["schemas"]["PlainFormat"] | components["schemas"]["SchemaFormat"]) | null;
            /**
             * Max Tokens
             * @description Maximum tokens of the answer, with reasoning. -1 sets no limit.
             */
            max_tokens?: number | null;
            /**
             * Max Completion Tokens
             * @description Overrides `max_tokens`.
             */
            max_completion_tokens?: number | null;
            /**
             * Logprobs
             * @description Return the log probabilities of the tokens of the answer.
             */
            logprobs?: boolean | null;
            /**
             * Top Logprobs
             * @description Alternatives for each token, with `logprobs`.
             */
            top_logprobs?: number | null;
            /**
             * Modalities
             * @description Only `text` is supported.
             */
            modalities?: string[] | null;
            /**
             * Audio
             * @description Not supported.
             */
            audio?: unknown;
            /**
             * Functions
             * @description Only an empty list is supported. Use `tools`.
             */
            functions?: unknown;
            /**
             * Function Call
             * @description Only `none` and `auto` are supported. Use `tool_choice`.
             */
            function_call?: unknown;
            /**
             * Web Search Options
             * @description Not supported.
             */
            web_search_options?: unknown;
        };
        /** @description A piece of the answer, as Ollama sent it. */
        ContentDelta: {
            content: string;
            role: string;
        };
        /** @description `content_delta`: A piece of the answer, as Ollama sent it. */
        ContentDeltaEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "content_delta";
            data: components["schemas"]["ContentDelta"];
        };
        /**
         * @description Old messages were left out of the prompt, or tool results and files were shortened.
         *
         *     `trimmed_tool_results` also counts old messages whose files were left out.
         *
         *     The stored session is complete.
         */
        ContextCompacted: {
            dropped_messages: number;
            trimmed_tool_results: number;
            summary_used: boolean;
        };
        /**
         * @description `context_compacted`: Old messages were left out of the prompt, or tool results and files were shortened.
         *
         *     `trimmed_tool_results` also counts old messages whose files were left out.
         *
         *     The stored session is complete.
         */
        ContextCompactedEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "context_compacted";
            data: components["schemas"]["ContextCompacted"];
        };
        /**
         * ContextWindow
         * @description Context window of the answer, in tokens.
         */
        ContextWindow: {
            /** Current Window */
            current_window: number | null;
            /** Usage Tokens */
            usage_tokens: number | null;
            /** Reason */
            reason: string | null;
        };
        /**
         * CountRequest
         * @description A conversation.
         *
         *     A null field counts as absent. Unknown fields, such as `cache_control`, are ignored.
         */
        CountRequest: {
            /**
             * Model
             * @description Model of Ollama, or `agent:NAME`.
             */
            model: string;
            /**
             * Messages
             * @description The conversation; in a session, its new messages.
             */
            messages: (components["schemas"]["AnthropicUserMessage"] | components["schemas"]["AnthropicAssistantMessage"] | components["schemas"]["AnthropicSystemMessage"])[];
            /**
             * System
             * @description Instructions for the model.
             */
            system?: (string | components["schemas"]["TextPart"][]) | null;
            /**
             * Tools
             * @description Tools that the client runs.
             */
            tools?: components["schemas"]["Tool"][] | null;
            /** @description It is enforced for the first answer of the turn. */
            tool_choice?: components["schemas"]["ToolChoice"] | null;
            /** @description Without this field, the session's default applies. */
            thinking?: components["schemas"]["Thinking"] | null;
            /** @description Level of thinking, and format of the answer. */
            output_config?: components["schemas"]["OutputConfig"] | null;
            /**
             * Thread
             * @description Not supported. The client sends whole conversations.
             */
            thread?: unknown;
        };
        /**
         * CustomFormat
         * @description Format of the input of a custom tool. The model reads ``definition``; it is not enforced.
         */
        CustomFormat: {
            /**
             * Type
             * @enum {string}
             */
            type: "text" | "grammar";
            /** Syntax */
            syntax?: string | null;
            /** Definition */
            definition?: string | null;
        };
        /**
         * CustomTool
         * @description A tool of the client whose input is free text, such as `apply_patch` of Codex.
         *
         *     The model receives it as a function with one string.
         */
        CustomTool: {
            /**
             * Type
             * @constant
             */
            type: "custom";
            /** Name */
            name: string;
            /** Description */
            description?: string | null;
            format?: components["schemas"]["CustomFormat"] | null;
        };
        /**
         * CustomToolCall
         * @description A call of a tool with free text. ``input`` is the text.
         */
        CustomToolCall: {
            /**
             * Type
             * @constant
             */
            type: "custom_tool_call";
            /** Call Id */
            call_id: string;
            /** Name */
            name: string;
            /** Namespace */
            namespace?: string | null;
            /** Input */
            input: string;
        };
        /**
         * DocumentBlock
         * @description A document: text or a PDF. The model receives a note in place of any other document.
         */
        DocumentBlock: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "document";
            source: components["schemas"]["DocumentSource"];
            /** Title */
            title?: string | null;
        };
        /**
         * DocumentSource
         * @description Data of a document: base64 or text in ``data``, or text blocks in ``content``.
         *
         *     The server reads no other documents.
         */
        DocumentSource: {
            /** Type */
            type: string;
            /** Data */
            data?: string | null;
            /** Media Type */
            media_type?: string | null;
            /** Content */
            content?: unknown;
        };
        /** @description The stream ended. No event follows. */
        Done: {
            session_id: string;
        };
        /** @description `done`: The stream ended. No event follows. */
        DoneEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "done";
            data: components["schemas"]["Done"];
        };
        /**
         * Embedding
         * @description Embedding of a text: numbers, or base64 of 32-bit floats in little-endian order.
         */
        Embedding: {
            /**
             * Object
             * @constant
             */
            object: "embedding";
            /** Index */
            index: number;
            /** Embedding */
            embedding: number[] | string;
        };
        /**
         * EmbeddingList
         * @description Embeddings in the order of the texts.
         */
        EmbeddingList: {
            /**
             * Object
             * @constant
             */
            object: "list";
            /** Data */
            data: components["schemas"]["Embedding"][];
            /** Model */
            model: string;
            usage: components["schemas"]["EmbeddingUsage"];
        };
        /**
         * EmbeddingRequest
         * @description Texts to embed. Unknown fields are ignored.
         * @example {
         *       "input": "Hello!",
         *       "model": "nomic-embed-text"
         *     }
         */
        EmbeddingRequest: {
            /**
             * Model
             * @description Model of Ollama.
             */
            model: string;
            /**
             * Input
             * @description A text, or a list of up to 2048 texts.
             */
            input: string | string[];
            /**
             * Dimensions
             * @description Length of the vectors, for models that support it.
             */
            dimensions?: number | null;
            /**
             * Encoding Format
             * @description `float` (default) or `base64`.
             */
            encoding_format?: ("float" | "base64") | null;
            /**
             * Options
             * @description Only `{}` is supported.
             */
            options?: unknown;
            /**
             * Num Ctx
             * @description Not supported. The server sets the context window.
             */
            num_ctx?: unknown;
        };
        /**
         * EmbeddingUsage
         * @description Number of tokens in the texts, as counted by Ollama.
         */
        EmbeddingUsage: {
            /** Prompt Tokens */
            prompt_tokens: number;
            /** Total Tokens */
            total_tokens: number;
        };
        /**
         * ErrorBody
         * @description An error. ``code`` is stable and meant for programs. ``message`` is text for users.
         */
        ErrorBody: {
            /**
             * Code
             * @example SESSION_NOT_FOUND
             */
            code: string;
            /**
             * Message
             * @example Session with ID 'a1b2c3d4e5' not found.
             */
            message: string;
            /** Details */
            details: {
                [key: string]: unknown;
            };
        };
        /**
         * ErrorEnvelope
         * @description Response body of every error.
         */
        ErrorEnvelope: {
            error: components["schemas"]["ErrorBody"];
        };
        /**
         * ExecutionList
         * @description The last 100 tool calls, oldest first.
         */
        ExecutionList: {
            /** Executions */
            executions: components["schemas"]["ToolExecution"][];
            statistics: components["schemas"]["AllExecutionStatistics"];
        };
        /**
         * ExecutionStatistics
         * @description Number of tool calls and their mean execution time.
         */
        ExecutionStatistics: {
            /** Total */
            total: number;
            /** Succeeded */
            succeeded: number;
            /** Failed */
            failed: number;
            /** Mean Seconds */
            mean_seconds: number;
        };
        /**
         * FileAgentSettings
         * @description Agent settings of a file. Nulls become defaults.
         */
        FileAgentSettings: {
            /**
             * Enabled Agents
             * @default null
             */
            enabled_agents?: string[] | null;
            /**
             * Selection Metadata
             * @default null
             */
            selection_metadata?: {
                [key: string]: unknown;
            } | null;
        } & {
            [key: string]: unknown;
        };
        /** FileCall */
        FileCall: {
            /**
             * Id
             * @default null
             */
            id?: string | null;
            function: components["schemas"]["FileCallFunction"];
        } & {
            [key: string]: unknown;
        };
        /** FileCallFunction */
        FileCallFunction: {
            /** Name */
            name: string;
            /** Arguments */
            arguments: {
                [key: string]: unknown;
            };
        } & {
            [key: string]: unknown;
        };
        /**
         * FileData
         * @description A file with text, or a PDF: a data URL or base64 in ``file_data``.
         */
        FileData: {
            /**
             * Filename
             * @default file
             */
            filename?: string;
            /**
             * File Id
             * @description Not supported. Use `file_data`.
             */
            file_id?: unknown;
            /** File Data */
            file_data?: string | null;
        };
        /** FileMessage */
        FileMessage: {
            /**
             * Role
             * @enum {string}
             */
            role: "system" | "user" | "assistant" | "tool";
            /** Content */
            content: string | null;
            /**
             * Message Id
             * @default null
             */
            message_id?: string | null;
            /**
             * Timestamp
             * @default null
             */
            timestamp?: string | null;
            /**
             * Tool Calls
             * @default null
             */
            tool_calls?: components["schemas"]["FileCall"][] | null;
            /**
             * Attachments
             * @default null
             */
            attachments?: components["schemas"]["AttachmentReference"][] | null;
        } & {
            [key: string]: unknown;
        };
        /** FileMetadata */
        FileMetadata: {
            /** Model */
            model: string;
            /**
             * Summary Model
             * @default null
             */
            summary_model?: string | null;
            /**
             * Options
             * @default null
             */
            options?: ({
                num_keep?: number | null;
                seed?: number | null;
                num_predict?: number | null;
                top_k?: number | null;
                top_p?: number | null;
                min_p?: number | null;
                typical_p?: number | null;
                repeat_last_n?: number | null;
                temperature?: number | null;
                repeat_penalty?: number | null;
                presence_penalty?: number | null;
                frequency_penalty?: number | null;
                stop?: string[] | null;
            } & {
                [key: string]: unknown;
            }) | null;
            /**
             * Keep Alive
             * @description How long Ollama keeps the model loaded: seconds, or a duration such as `5m`.
             * @default null
             */
            keep_alive?: string | number | null;
            /**
             * Think
             * @description Reasoning of models that can think: on, off or a level.
             * @default null
             */
            think?: boolean | ("low" | "medium" | "high" | "max") | null;
            /**
             * Format
             * @default null
             */
            format?: "json" | {
                [key: string]: unknown;
            } | null;
            /**
             * Title
             * @default null
             */
            title?: string | null;
            /**
             * Tags
             * @default null
             */
            tags?: string[] | null;
            /**
             * Pinned
             * @default null
             */
            pinned?: boolean | null;
            /**
             * Archived
             * @default null
             */
            archived?: boolean | null;
            /** @default null */
            tool_settings?: components["schemas"]["FileToolSettings"] | null;
            /** @default null */
            agent_settings?: components["schemas"]["FileAgentSettings"] | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * FilePart
         * @description A file that the model reads.
         */
        FilePart: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "file";
            file: components["schemas"]["FileData"];
        };
        /**
         * FileToolSettings
         * @description Tool settings of a file. Nulls become defaults. The approvals are not checked: invalid ones
         *     reset the settings.
         */
        FileToolSettings: {
            /**
             * Tools
             * @default null
             */
            tools?: string[] | null;
            /**
             * Tool Group
             * @default null
             */
            tool_group?: string | null;
            /** @default null */
            execution_policy?: components["schemas"]["ToolExecutionPolicy"] | null;
        } & {
            [key: string]: unknown;
        };
        /** FileVersion */
        FileVersion: {
            /** Version Id */
            version_id: string;
            /** Message Id */
            message_id: string;
            /** Messages */
            messages: components["schemas"]["FileMessage"][];
            /**
             * Replaced At
             * @default null
             */
            replaced_at?: string | null;
            /**
             * Inside
             * @default null
             */
            inside?: string | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * Function
         * @description Function of a tool call. ``arguments`` is JSON text.
         */
        Function: {
            /** Name */
            name: string;
            /**
             * Arguments
             * @default {}
             */
            arguments?: string | {
                [key: string]: unknown;
            } | unknown[] | null;
        };
        /**
         * FunctionCall
         * @description A tool call of the model. ``arguments`` is JSON text.
         */
        FunctionCall: {
            /**
             * Type
             * @constant
             */
            type: "function_call";
            /** Call Id */
            call_id: string;
            /** Name */
            name: string;
            /** Namespace */
            namespace?: string | null;
            /** Arguments */
            arguments: string | {
                [key: string]: unknown;
            } | unknown[] | null;
        };
        /**
         * FunctionCallOutput
         * @description The result of a tool call. Null is an empty result. Files become text.
         */
        FunctionCallOutput: {
            /**
             * Type
             * @enum {string}
             */
            type: "function_call_output" | "custom_tool_call_output";
            /** Call Id */
            call_id: string;
            /** Output */
            output: (string | (components["schemas"]["InputText"] | components["schemas"]["InputImage"] | components["schemas"]["InputFile"])[]) | null;
        };
        /**
         * FunctionTool
         * @description A function of the client that the model may call. ``parameters`` is a JSON schema.
         */
        FunctionTool: {
            /** Name */
            name: string;
            /** Description */
            description?: string | null;
            /** Parameters */
            parameters?: {
                [key: string]: unknown;
            } | null;
        };
        /**
         * Health
         * @description State of the server.
         *
         *     ``status`` is always ``ok``. ``ollama_connected`` is true if Ollama responds.
         */
        Health: {
            /**
             * Status
             * @default ok
             * @constant
             */
            status?: "ok";
            /** Ollama Connected */
            ollama_connected: boolean;
            /** Ollama Host */
            ollama_host: string;
            /** Version */
            version: string;
        };
        /**
         * HistoryChanged
         * @description A session whose history was changed.
         *
         *     ``warnings`` says how many of the oldest versions exceeded a limit and were removed.
         */
        HistoryChanged: {
            /** Session Id */
            session_id: string;
            /** Model */
            model: string;
            /** Created At */
            created_at: string;
            /** Updated At */
            updated_at: string;
            /** Message Count */
            message_count: number;
            /** Title */
            title: string | null;
            /** Preview */
            preview: string;
            /** Summary */
            summary: {
                summary: string;
                topics: string[];
            } | null;
            /** Summary Model */
            summary_model: string | null;
            /** Format Version */
            format_version: string;
            tool_settings: components["schemas"]["ToolSettings"];
            agent_settings: components["schemas"]["AgentSettings"];
            /**
             * Context Window Config
             * @description Context window of the session, in tokens, and its latest changes.
             */
            context_window_config: {
                dynamic_enabled: boolean;
                current_window: number | null;
                last_adjustment: string | null;
                adjustment_history: Record<string, never>[];
                manual_override: boolean;
            };
            /** Options */
            options: {
                [key: string]: unknown;
            } | null;
            /** Keep Alive */
            keep_alive: string | number | null;
            /** Think */
            think: boolean | string | null;
            /** Format */
            format: string | {
                [key: string]: unknown;
            } | null;
            /** Ollama Host */
            ollama_host: string | null;
            /** Tags */
            tags: string[];
            /** Pinned */
            pinned: boolean;
            /** Archived */
            archived: boolean;
            /** Temporary */
            temporary: boolean;
            /** Expires At */
            expires_at: string | null;
            /** Messages */
            messages: components["schemas"]["StoredMessage"][];
            /**
             * Versions
             * @description Number of versions by message ID, for the messages that have versions.
             */
            versions: {
                [key: string]: components["schemas"]["VersionCount"];
            };
            /** Warnings */
            warnings: components["schemas"]["WarningOut"][];
        };
        /**
         * HistoryMessage
         * @description An earlier message of the conversation.
         */
        HistoryMessage: {
            /**
             * Role
             * @enum {string}
             */
            role: "system" | "user" | "assistant";
            /** Content */
            content: string;
        };
        /**
         * HostList
         * @description All Ollama hosts, with the numbers of this server's requests that run on them or wait for
         *     them.
         */
        HostList: {
            /** Hosts */
            hosts: components["schemas"]["OllamaHost"][];
        };
        /**
         * ImageBlock
         * @description An image, for models with `vision`.
         */
        ImageBlock: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "image";
            source: components["schemas"]["ImageSource"];
        };
        /**
         * ImagePart
         * @description An image, for models with `vision`.
         */
        ImagePart: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "image_url";
            /** Image Url */
            image_url: string | components["schemas"]["ImageUrl"];
        };
        /**
         * ImageReference
         * @description An image of a message.
         *
         *     ``sha256`` is the hash of its bytes, in hex. Its bytes are at ``blobs/{sha256}``.
         */
        ImageReference: {
            /** Sha256 */
            sha256: string;
            /** Media Type */
            media_type: string;
            /** Unreadable */
            unreadable?: boolean;
        } & {
            [key: string]: unknown;
        };
        /**
         * ImageSource
         * @description Data of an image: base64 in ``data``, or a data URL in ``url``.
         *
         *     The server reads no other images.
         */
        ImageSource: {
            /** Type */
            type: string;
            /** Data */
            data?: string | null;
            /** Url */
            url?: string | null;
        };
        /**
         * ImageUrl
         * @description An image as a data URL.
         */
        ImageUrl: {
            /** Url */
            url: string;
        };
        /**
         * InputFile
         * @description A file with text, or a PDF: a data URL or base64 in ``file_data``.
         */
        InputFile: {
            /**
             * Filename
             * @default file
             */
            filename?: string;
            /**
             * File Id
             * @description Not supported. Use `file_data`.
             */
            file_id?: unknown;
            /** File Data */
            file_data?: string | null;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "input_file";
            /**
             * File Url
             * @description Not supported. Use `file_data`.
             */
            file_url?: unknown;
        };
        /**
         * InputImage
         * @description An image as a data URL, for models with `vision`.
         */
        InputImage: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "input_image";
            /** Image Url */
            image_url?: string | null;
            /**
             * File Id
             * @description Not supported. Use `image_url`.
             */
            file_id?: unknown;
        };
        /**
         * InputItemList
         * @description Items before the output of a response. `has_more` states whether other pages follow.
         */
        InputItemList: {
            /**
             * Object
             * @default list
             * @constant
             */
            object?: "list";
            /** Data */
            data: {
                [key: string]: unknown;
            }[];
            /** First Id */
            first_id: string | null;
            /** Last Id */
            last_id: string | null;
            /** Has More */
            has_more: boolean;
        };
        /**
         * InputMessage
         * @description A message from the user or the model, or instructions for the model.
         */
        InputMessage: {
            /**
             * Type
             * @default message
             */
            type?: "message" | null;
            /**
             * Role
             * @enum {string}
             */
            role: "user" | "assistant" | "system" | "developer";
            /** Content */
            content: string | (components["schemas"]["InputText"] | components["schemas"]["RefusalPart"] | components["schemas"]["InputImage"] | components["schemas"]["InputFile"])[];
        };
        /**
         * InputText
         * @description Part of a message or of a tool result that contains text.
         */
        InputText: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "input_text" | "output_text" | "text";
            /** Text */
            text: string;
        };
        /**
         * InputTokens
         * @description Estimated number of tokens of a request.
         */
        InputTokens: {
            /**
             * Object
             * @default response.input_tokens
             * @constant
             */
            object?: "response.input_tokens";
            /** Input Tokens */
            input_tokens: number;
        };
        /**
         * InputTokensDetails
         * @description Cached tokens in the input.
         *
         *     ``cached_tokens`` is 0 if Ollama reports none; ``cache_write_tokens`` is always 0.
         */
        InputTokensDetails: {
            /** Cached Tokens */
            cached_tokens: number;
            /** Cache Write Tokens */
            cache_write_tokens: number;
        };
        /**
         * ItemReference
         * @description The ID of an item that the server sent in an earlier response.
         */
        ItemReference: {
            /** Type */
            type?: "item_reference" | null;
            /** Id */
            id: string;
        };
        /**
         * JsonSchema
         * @description Schema of the answer.
         */
        JsonSchema: {
            /**
             * Name
             * @default answer
             */
            name?: string;
            /** Schema */
            schema?: {
                [key: string]: unknown;
            } | null;
        };
        /**
         * LibreChatChat
         * @description Conversation of a LibreChat export.
         *
         *     The messages can also be a tree: ``messages`` with ``children``, or ``messagesTree``.
         */
        LibreChatChat: {
            /** Conversationid */
            conversationId: string;
            /** Messages */
            messages: components["schemas"]["LibreChatMessage"][];
            /**
             * Title
             * @default null
             */
            title?: string | null;
            /** @default null */
            options?: components["schemas"]["LibreChatOptions"] | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * LibreChatMessage
         * @description Message. ``text`` is for messages without ``content``.
         */
        LibreChatMessage: {
            /** Messageid */
            messageId: string;
            /** Iscreatedbyuser */
            isCreatedByUser: boolean;
            /**
             * Parentmessageid
             * @default null
             */
            parentMessageId?: string | null;
            /**
             * Text
             * @default null
             */
            text?: string | null;
            /**
             * Content
             * @default null
             */
            content?: components["schemas"]["LibreChatPart"][] | null;
            /**
             * Model
             * @default null
             */
            model?: string | null;
            /**
             * Createdat
             * @default null
             */
            createdAt?: string | null;
            /**
             * Files
             * @default null
             */
            files?: {
                [key: string]: unknown;
            }[] | null;
        } & {
            [key: string]: unknown;
        };
        /** LibreChatOptions */
        LibreChatOptions: {
            /**
             * Model
             * @default null
             */
            model?: string | null;
            /**
             * Promptprefix
             * @default null
             */
            promptPrefix?: string | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * LibreChatPart
         * @description Part of an answer. Its fields depend on ``type``.
         */
        LibreChatPart: {
            /** Type */
            type: string;
            /**
             * Text
             * @default null
             */
            text?: string | {
                [key: string]: unknown;
            } | null;
            /**
             * Think
             * @default null
             */
            think?: string | {
                [key: string]: unknown;
            } | null;
            /**
             * Image Url
             * @default null
             */
            image_url?: unknown;
        } & {
            [key: string]: unknown;
        };
        /**
         * McpAuthorization
         * @description An authorization that waits for a user.
         */
        McpAuthorization: {
            /**
             * Authorization Url
             * @description URL that the user opens in a browser.
             */
            authorization_url: string;
            /**
             * Expires In
             * @description How long the user has, in seconds.
             */
            expires_in: number;
        };
        /**
         * McpAuthorizationRequest
         * @description Where the browser of the user reaches this server.
         * @example {
         *       "callback_url": "https://chat.example/api/v1/mcp/callback"
         *     }
         */
        McpAuthorizationRequest: {
            /**
             * Callback Url
             * @description URL of `GET /api/v1/mcp/callback` for the browser of the user. The default has the host of this request.
             */
            callback_url?: string | null;
        };
        /**
         * McpServerInfo
         * @description An MCP server of `mcp.json`.
         *
         *     One that `needs_authorization` has refused a request without a valid token.
         */
        McpServerInfo: {
            /** Name */
            name: string;
            /**
             * Location
             * @description Program, or URL without credentials and query.
             */
            location: string;
            /**
             * Transport
             * @enum {string}
             */
            transport: "stdio" | "http" | "sse";
            /**
             * State
             * @enum {string}
             */
            state: "connected" | "connecting" | "needs_authorization" | "failed";
            /**
             * Is Authorized
             * @description Whether OAuth tokens are stored.
             */
            is_authorized: boolean;
            /**
             * Tools
             * @description Number of its tools.
             */
            tools: number;
            /** Problems */
            problems: string[];
        };
        /**
         * McpServerList
         * @description All MCP servers, in the order of `mcp.json`.
         */
        McpServerList: {
            /** Servers */
            servers: components["schemas"]["McpServerInfo"][];
        };
        /** @description The answer is complete and stored. The counts are Ollama's token counts, or null. */
        MessageComplete: {
            message_id: string;
            model: string;
            eval_count: number | null;
            prompt_eval_count: number | null;
            /** @description Context window of the answer, in tokens. */
            context_window: {
                current_window: number | null;
                usage_tokens: number | null;
                reason: string | null;
            };
            done_reason: string | null;
            prompt_eval_cached_count: number | null;
        };
        /** @description `message_complete`: The answer is complete and stored. The counts are Ollama's token counts, or null. */
        MessageCompleteEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "message_complete";
            data: components["schemas"]["MessageComplete"];
        };
        /**
         * MessageEdit
         * @description New text of a user message. Its files are kept, and without ``images`` its images too.
         * @example {
         *       "content": "What is the capital of Spain?"
         *     }
         */
        MessageEdit: {
            /**
             * Content
             * @description New text of the message.
             */
            content: string;
            /**
             * Images
             * @description New images in place of the old ones, as in a message. `[]` removes them.
             */
            images?: string[] | null;
        };
        /**
         * MessageList
         * @description Messages of a session.
         *
         *     The position in the list is the index of the message, starting at 0.
         */
        MessageList: {
            /** Session Id */
            session_id: string;
            /** Messages */
            messages: components["schemas"]["StoredMessage"][];
        };
        /**
         * MessageRequest
         * @description A conversation to answer. A null field counts as absent. Unknown fields are ignored.
         * @example {
         *       "max_tokens": 1024,
         *       "messages": [
         *         {
         *           "content": "Hello!",
         *           "role": "user"
         *         }
         *       ],
         *       "model": "qwen3:14b"
         *     }
         */
        MessageRequest: {
            /**
             * Model
             * @description Model of Ollama, or `agent:NAME`.
             */
            model: string;
            /**
             * Messages
             * @description The conversation; in a session, its new messages.
             */
            messages: (components["schemas"]["AnthropicUserMessage"] | components["schemas"]["AnthropicAssistantMessage"] | components["schemas"]["AnthropicSystemMessage"])[];
            /**
             * System
             * @description Instructions for the model.
             */
            system?: (string | components["schemas"]["TextPart"][]) | null;
            /**
             * Tools
             * @description Tools that the client runs.
             */
            tools?: components["schemas"]["Tool"][] | null;
            /** @description It is enforced for the first answer of the turn. */
            tool_choice?: components["schemas"]["ToolChoice"] | null;
            /** @description Without this field, the session's default applies. */
            thinking?: components["schemas"]["Thinking"] | null;
            /** @description Level of thinking, and format of the answer. */
            output_config?: components["schemas"]["OutputConfig"] | null;
            /**
             * Thread
             * @description Not supported. The client sends whole conversations.
             */
            thread?: unknown;
            /**
             * Max Tokens
             * @description Maximum tokens of the answer, with thinking. -1 sets no limit.
             */
            max_tokens: number;
            /**
             * Stream
             * @description Stream the answer.
             */
            stream?: boolean | null;
            /**
             * Temperature
             * @description Sampling temperature.
             */
            temperature?: number | null;
            /**
             * Top P
             * @description Nucleus sampling: cumulative probability of candidates.
             */
            top_p?: number | null;
            /**
             * Top K
             * @description Number of candidates for the next token.
             */
            top_k?: number | null;
            /**
             * Stop Sequences
             * @description Stop sequences. The answer ends before them.
             */
            stop_sequences?: string[] | null;
        };
        /**
         * MessageResponse
         * @description An answer. ``content`` has blocks of the types `thinking`, `text` and `tool_use`.
         */
        MessageResponse: {
            /** Id */
            id: string;
            /**
             * Type
             * @constant
             */
            type: "message";
            /**
             * Role
             * @constant
             */
            role: "assistant";
            /** Model */
            model: string;
            /** Content */
            content: {
                [key: string]: unknown;
            }[];
            /**
             * Stop Reason
             * @enum {string}
             */
            stop_reason: "end_turn" | "max_tokens" | "tool_use";
            /** Stop Sequence */
            stop_sequence: null;
            /**
             * Usage
             * @description Ollama's token counts, summed over all requests of the turn. `cache_read_input_tokens` is null if Ollama does not report cached tokens.
             */
            usage: {
                [key: string]: number | null;
            };
            mochi: components["schemas"]["MochiExtension"];
        };
        /**
         * Metadata
         * @description Metadata of a request.
         *
         *     ``session_id`` is the ID of the session for the turn. Other keys have no effect.
         */
        Metadata: {
            /** Session Id */
            session_id?: string | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * MochiExtension
         * @description Results that other providers do not have.
         *
         *     ``notices`` are ``warning`` and ``context_compacted`` events.
         */
        MochiExtension: {
            context_window: components["schemas"]["ContextWindow"];
            /** Tool Calls Executed */
            tool_calls_executed: components["schemas"]["ToolCallExecuted"][];
            /** Notices */
            notices: {
                [key: string]: unknown;
            }[];
        };
        /**
         * Model
         * @description A chat model.
         *
         *     ``size_mb`` is in units of 1024 * 1024 bytes. ``context_length`` is in tokens.
         */
        Model: {
            /** Name */
            name: string;
            /** Size Mb */
            size_mb: number;
            /** Format */
            format: string;
            /** Family */
            family: string;
            /** Parameter Size */
            parameter_size: string;
            /** Quantization Level */
            quantization_level: string;
            /** Capabilities */
            capabilities: string[];
            /** Context Length */
            context_length: number | null;
            /**
             * Hosts
             * @description Names of the Ollama hosts that have the model, if several are configured.
             */
            hosts?: string[];
        };
        /**
         * ModelList
         * @description All chat models, in Ollama's order.
         */
        ModelList: {
            /** Models */
            models: components["schemas"]["Model"][];
        };
        /**
         * ModelResponse
         * @description A response.
         *
         *     ``output`` has `reasoning`, `message` and `function_call`. Fields of the request are repeated.
         */
        ModelResponse: {
            /** Id */
            id: string;
            /**
             * Object
             * @constant
             */
            object: "response";
            /** Created At */
            created_at: number;
            /**
             * Status
             * @enum {string}
             */
            status: "in_progress" | "completed" | "incomplete" | "failed" | "cancelled";
            /** Error */
            error: {
                [key: string]: unknown;
            } | null;
            /** Incomplete Details */
            incomplete_details: {
                [key: string]: unknown;
            } | null;
            /** Model */
            model: string;
            /** Output */
            output: {
                [key: string]: unknown;
            }[];
            usage: components["schemas"]["ResponseUsage"] | null;
            /** Store */
            store: boolean;
            mochi?: components["schemas"]["MochiExtension"] | null;
        };
        /**
         * NamedFunction
         * @description Name of a function.
         */
        NamedFunction: {
            /** Name */
            name: string;
        };
        /**
         * NamedResponseFunction
         * @description The function that the model must call.
         *
         *     The server does not offer any other function to the model.
         */
        NamedResponseFunction: {
            /** Name */
            name: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "custom" | "function";
        };
        /**
         * NamedTool
         * @description The tool that the model must call.
         *
         *     The server does not offer any other tool to the model.
         */
        NamedTool: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "function";
            function: components["schemas"]["NamedFunction"];
        };
        /**
         * OllamaHost
         * @description An Ollama host.
         *
         *     Its URL has no credentials. A `draining` host was removed from the list: it gets no new turns.
         */
        OllamaHost: {
            /** Name */
            name: string;
            /** Url */
            url: string;
            /**
             * State
             * @enum {string}
             */
            state: "up" | "down" | "draining";
            /** Reason */
            reason?: string | null;
            /** Running */
            running: number;
            /** Queued */
            queued: number;
        };
        /**
         * OpenAIError
         * @description An error. ``code`` is meant for programs. ``param`` is the invalid field.
         */
        OpenAIError: {
            /** Message */
            message: string;
            /** Type */
            type: string;
            /** Param */
            param?: string | null;
            /** Code */
            code: string;
        };
        /**
         * OpenAIErrorEnvelope
         * @description Response body of every error of OpenAI's routes under `/v1`.
         */
        OpenAIErrorEnvelope: {
            error: components["schemas"]["OpenAIError"];
        };
        /**
         * OpenAIModel
         * @description A possible value of ``model`` in a request.
         *
         *     ``created`` is the time of its last change, in seconds since 1970.
         */
        OpenAIModel: {
            /** Id */
            id: string;
            /**
             * Object
             * @default model
             * @constant
             */
            object?: "model";
            /**
             * Created
             * @default 0
             */
            created?: number;
            /**
             * Owned By
             * @default mochi-server
             */
            owned_by?: string;
        };
        /**
         * OpenAIModelList
         * @description All models: first the chat models of Ollama, then its other models, then the agents.
         */
        OpenAIModelList: {
            /**
             * Object
             * @default list
             * @constant
             */
            object?: "list";
            /** Data */
            data: components["schemas"]["OpenAIModel"][];
        };
        /**
         * OpenWebUIChat
         * @description Chat of an Open WebUI export. Times are in Unix seconds.
         */
        OpenWebUIChat: {
            chat: components["schemas"]["OpenWebUIContent"];
            /**
             * Title
             * @default null
             */
            title?: string | null;
            /**
             * Created At
             * @default null
             */
            created_at?: number | null;
            /**
             * Updated At
             * @default null
             */
            updated_at?: number | null;
            /**
             * Pinned
             * @default null
             */
            pinned?: unknown;
            /**
             * Archived
             * @default null
             */
            archived?: unknown;
            /**
             * Meta
             * @default null
             */
            meta?: unknown;
        } & {
            [key: string]: unknown;
        };
        /**
         * OpenWebUIContent
         * @description Content of a chat. ``timestamp`` is in Unix milliseconds.
         */
        OpenWebUIContent: {
            /**
             * Title
             * @default null
             */
            title?: string | null;
            /**
             * Models
             * @default null
             */
            models?: (string | null)[] | null;
            /**
             * System
             * @default null
             */
            system?: string | null;
            /** @default null */
            params?: components["schemas"]["OpenWebUIParams"] | null;
            /**
             * Timestamp
             * @default null
             */
            timestamp?: number | null;
            history: components["schemas"]["OpenWebUIHistory"];
        } & {
            [key: string]: unknown;
        };
        /**
         * OpenWebUIHistory
         * @description Tree of messages. ``currentId`` is the last message of the current branch.
         */
        OpenWebUIHistory: {
            /** Messages */
            messages: {
                [key: string]: components["schemas"]["OpenWebUIMessage"] | null;
            };
            /**
             * Currentid
             * @default null
             */
            currentId?: string | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * OpenWebUIMessage
         * @description Message with the ID of its parent.
         *
         *     ``timestamp`` is in Unix seconds. Messages without a role are ignored.
         */
        OpenWebUIMessage: {
            /**
             * Role
             * @default null
             */
            role?: ("system" | "user" | "assistant") | null;
            /**
             * Content
             * @default null
             */
            content?: string | {
                [key: string]: unknown;
            }[] | null;
            /**
             * Parentid
             * @default null
             */
            parentId?: string | null;
            /**
             * Timestamp
             * @default null
             */
            timestamp?: number | null;
            /**
             * Model
             * @default null
             */
            model?: string | null;
            /**
             * Files
             * @default null
             */
            files?: {
                [key: string]: unknown;
            }[] | null;
            /**
             * Output
             * @default null
             */
            output?: unknown;
        } & {
            [key: string]: unknown;
        };
        /** OpenWebUIParams */
        OpenWebUIParams: {
            /**
             * System
             * @default null
             */
            system?: string | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * OtherItem
         * @description Any other item. The server leaves it out, with a notice.
         */
        OtherItem: {
            /** Type */
            type: string;
        };
        /**
         * OtherTool
         * @description Any other tool, such as `web_search`. The server leaves it out, with a notice.
         */
        OtherTool: {
            /** Type */
            type: string;
        };
        /**
         * OutputConfig
         * @description Options of the answer. ``effort`` is the level of thinking, if the model thinks.
         */
        OutputConfig: {
            /** Effort */
            effort?: ("none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "ultra" | "max") | null;
            format?: components["schemas"]["SchemaTextFormat"] | null;
        };
        /**
         * OutputTokensDetails
         * @description Number of reasoning tokens in the output.
         *
         *     It is always 0, because Ollama does not count them separately.
         */
        OutputTokensDetails: {
            /** Reasoning Tokens */
            reasoning_tokens: number;
        };
        /**
         * PendingConfirmation
         * @description A tool call that waits for approval.
         */
        PendingConfirmation: {
            /** Confirmation Id */
            confirmation_id: string;
            /** Tool Name */
            tool_name: string;
            /** Arguments */
            arguments: {
                [key: string]: unknown;
            };
            /** Call Index */
            call_index: number;
            /** Agent Name */
            agent_name?: string | null;
            /**
             * State
             * @constant
             */
            state: "waiting";
        };
        /**
         * PendingConfirmations
         * @description All tool calls of a session that need approval, oldest first.
         */
        PendingConfirmations: {
            /** Confirmations */
            confirmations: components["schemas"]["PendingConfirmation"][];
        };
        /**
         * PlainFormat
         * @description Response format: plain text, or any JSON object.
         */
        PlainFormat: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "json_object" | "text";
        };
        /**
         * PromptContent
         * @description New text of a prompt file.
         *
         *     It must not be blank and must have fewer than 10,000 characters.
         */
        PromptContent: {
            /**
             * Content
             * @description Text of the prompt.
             */
            content: string;
        };
        /** PromptEntry */
        PromptEntry: {
            /** Filename */
            filename: string;
            /** Preview */
            preview: string;
            /** Word Count */
            word_count: number;
        };
        /**
         * PromptEvaluation
         * @description Evaluation of the prompt of the last answer. ``prompt_eval_duration`` is in nanoseconds.
         */
        PromptEvaluation: {
            /**
             * Prompt Eval Count
             * @description Number of tokens of the prompt.
             */
            prompt_eval_count: number;
            /**
             * Prompt Eval Duration
             * @description Time to evaluate the part of the prompt that was not cached.
             */
            prompt_eval_duration: number;
            /**
             * Prompt Eval Cached Count
             * @description Number of cached tokens of the prompt. Null if unknown.
             */
            prompt_eval_cached_count: number | null;
            /**
             * Evaluated Tokens
             * @description Number of tokens that were not cached. Null if unknown.
             */
            evaluated_tokens: number | null;
            /**
             * Cached Share
             * @description Share of cached tokens in the prompts of the last 5 turns. Null if unknown.
             */
            cached_share: number | null;
        };
        /**
         * PromptFile
         * @description A prompt file: its name and its text.
         */
        PromptFile: {
            /**
             * Content
             * @description Text of the prompt.
             */
            content: string;
            /**
             * Filename
             * @description File name without a directory. It ends in `.md` or `.txt`.
             * @example helpful.md
             */
            filename: string;
        };
        /**
         * PromptList
         * @description All prompt files, sorted by name.
         */
        PromptList: {
            /** Prompts */
            prompts: components["schemas"]["PromptEntry"][];
        };
        /**
         * PromptTokensDetails
         * @description Number of prompt tokens that were in Ollama's cache.
         *
         *     It is null if Ollama does not report it.
         */
        PromptTokensDetails: {
            /** Cached Tokens */
            cached_tokens: number | null;
        };
        /**
         * Ready
         * @description The server accepts new turns and can store them.
         */
        Ready: {
            /**
             * Status
             * @default ready
             * @constant
             */
            status?: "ready";
        };
        /**
         * ReasoningItem
         * @description Reasoning of the model before its answer.
         */
        ReasoningItem: {
            /**
             * Type
             * @constant
             */
            type: "reasoning";
            /** Summary */
            summary?: components["schemas"]["ReasoningText"][];
            /** Content */
            content?: components["schemas"]["ReasoningText"][] | null;
        };
        /**
         * ReasoningOptions
         * @description Reasoning options of a request, for models that can think.
         */
        ReasoningOptions: {
            /** Effort */
            effort?: ("none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "ultra" | "max") | null;
        };
        /**
         * ReasoningText
         * @description Reasoning of the model.
         */
        ReasoningText: {
            /** Text */
            text: string;
        };
        /**
         * RefusalPart
         * @description Text with which a model refused to answer.
         */
        RefusalPart: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "refusal";
            /** Refusal */
            refusal: string;
        };
        /**
         * ResponseFunction
         * @description A function of the client that the model may call. ``parameters`` is a JSON schema.
         */
        ResponseFunction: {
            /** Name */
            name: string;
            /** Description */
            description?: string | null;
            /** Parameters */
            parameters?: {
                [key: string]: unknown;
            } | null;
            /**
             * Type
             * @constant
             */
            type: "function";
        };
        /**
         * ResponseNamespace
         * @description A group of functions and tools with free text.
         *
         *     The model receives them as single functions. Their calls name the group. The server leaves other
         *     tools in it out, also namespaces.
         */
        ResponseNamespace: {
            /**
             * Type
             * @constant
             */
            type: "namespace";
            /** Name */
            name: string;
            /** Description */
            description?: string | null;
            /** Tools */
            tools: (components["schemas"]["ResponseFunction"] | components["schemas"]["CustomTool"] | components["schemas"]["OtherTool"])[];
        };
        /**
         * ResponseRequest
         * @description Input to answer. A null field counts as absent. Unknown fields are ignored.
         * @example {
         *       "input": "Hello!",
         *       "model": "qwen3:14b"
         *     }
         */
        ResponseRequest: {
            /**
             * Model
             * @description Model of Ollama, or `agent:NAME`.
             */
            model: string;
            /**
             * Stream
             * @description Stream the answer.
             */
            stream?: boolean | null;
            /** @description `session_id` is the session of the turn. */
            metadata?: components["schemas"]["Metadata"] | null;
            /**
             * Temperature
             * @description Sampling temperature.
             */
            temperature?: number | null;
            /**
             * Top P
             * @description Nucleus sampling: cumulative probability of candidates.
             */
            top_p?: number | null;
            /**
             * Frequency Penalty
             * @description Penalty for frequent tokens.
             */
            frequency_penalty?: number | null;
            /**
             * Presence Penalty
             * @description Penalty for tokens that already occurred.
             */
            presence_penalty?: number | null;
            /**
             * Seed
             * @description The same seed and request give the same answer.
             */
            seed?: number | null;
            /**
             * Stop
             * @description Stop sequences. The answer ends before them.
             */
            stop?: string | string[] | null;
            /**
             * Top K
             * @description Number of candidates for the next token. Not in OpenAI's API.
             */
            top_k?: number | null;
            /**
             * Min P
             * @description Minimum probability of candidates. Not in OpenAI's API.
             */
            min_p?: number | null;
            /**
             * Repeat Penalty
             * @description Penalty. Not in OpenAI's API.
             */
            repeat_penalty?: number | null;
            /**
             * Reasoning Effort
             * @description Level of reasoning of a model that can think.
             */
            reasoning_effort?: ("none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "ultra" | "max") | null;
            /** @description `effort` overrides `reasoning_effort`. */
            reasoning?: components["schemas"]["ReasoningOptions"] | null;
            /**
             * Think
             * @description Ollama's name of `reasoning_effort`, which overrides it.
             */
            think?: boolean | ("none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "ultra" | "max") | null;
            /** @description `enable_thinking` applies if no other field sets the level of reasoning. */
            chat_template_kwargs?: components["schemas"]["ChatTemplateOptions"] | null;
            /**
             * Keep Alive
             * @description How long Ollama keeps the model loaded: seconds, or a duration such as `5m`.
             */
            keep_alive?: string | number | null;
            /**
             * Options
             * @description Only `{}` is supported. Use the fields of this request.
             */
            options?: unknown;
            /**
             * Num Ctx
             * @description Not supported. The server sets the context window.
             */
            num_ctx?: unknown;
            /**
             * N
             * @description Only 1 is supported.
             */
            n?: number | null;
            /**
             * Logit Bias
             * @description Only `{}` is supported.
             */
            logit_bias?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format
             * @description Not supported.
             */
            format?: unknown;
            /**
             * Input
             * @description A message, or items.
             */
            input: string | (components["schemas"]["InputMessage"] | components["schemas"]["FunctionCall"] | components["schemas"]["FunctionCallOutput"] | components["schemas"]["CustomToolCall"] | components["schemas"]["BuiltInCall"] | components["schemas"]["BuiltInCallOutput"] | components["schemas"]["ReasoningItem"] | components["schemas"]["ItemReference"] | components["schemas"]["OtherItem"])[];
            /**
             * Instructions
             * @description System message of this request.
             */
            instructions?: string | null;
            /**
             * Previous Response Id
             * @description Response to continue. In a session, the latest one; else one of the last hour.
             */
            previous_response_id?: string | null;
            /**
             * Store
             * @description If `false`, later requests cannot refer to the output items.
             */
            store?: boolean | null;
            /**
             * Tools
             * @description Functions and custom tools that the client runs, and namespaces.
             */
            tools?: (components["schemas"]["ResponseFunction"] | components["schemas"]["CustomTool"] | components["schemas"]["ResponseNamespace"] | components["schemas"]["OtherTool"])[] | null;
            /**
             * Tool Choice
             * @description Whether the model may or must call a tool. It is enforced for the first answer of the turn.
             */
            tool_choice?: (("none" | "auto" | "required") | (components["schemas"]["NamedResponseFunction"] | components["schemas"]["AllowedFunctions"])) | null;
            /**
             * Parallel Tool Calls
             * @description If `false`, each answer calls one tool at most. The server drops further calls.
             */
            parallel_tool_calls?: boolean | null;
            /** @description `format`: text, any JSON object, or JSON that fits a schema. */
            text?: components["schemas"]["TextOptions"] | null;
            /**
             * Max Output Tokens
             * @description Maximum tokens of the answer, with reasoning.
             */
            max_output_tokens?: number | null;
            /**
             * Include
             * @description No effect. `message.output_text.logprobs` is not supported.
             */
            include?: string[] | null;
            /**
             * Max Tokens
             * @description Not supported.
             */
            max_tokens?: unknown;
            /**
             * Max Completion Tokens
             * @description Not supported.
             */
            max_completion_tokens?: unknown;
            /**
             * Logprobs
             * @description Only `false` is supported.
             */
            logprobs?: boolean | null;
            /**
             * Top Logprobs
             * @description Only 0 is supported.
             */
            top_logprobs?: number | null;
            /**
             * Response Format
             * @description Not supported.
             */
            response_format?: unknown;
            /**
             * Background
             * @description Return the response at once. Get or cancel it by its ID later.
             */
            background?: boolean | null;
            /**
             * Conversation
             * @description Not supported. Use a session.
             */
            conversation?: unknown;
            /**
             * Prompt
             * @description Not supported.
             */
            prompt?: unknown;
            /**
             * Max Tool Calls
             * @description Not supported.
             */
            max_tool_calls?: unknown;
        };
        /**
         * ResponseUsage
         * @description Ollama's token counts, summed over all requests of the turn.
         */
        ResponseUsage: {
            /** Input Tokens */
            input_tokens: number;
            input_tokens_details: components["schemas"]["InputTokensDetails"];
            /** Output Tokens */
            output_tokens: number;
            output_tokens_details: components["schemas"]["OutputTokensDetails"];
            /** Total Tokens */
            total_tokens: number;
        };
        /**
         * RunStatus
         * @description The running or most recent turn of a session.
         *
         *     ``idle`` means that there was no recent turn.
         */
        RunStatus: {
            /** Run Id */
            run_id: string | null;
            /**
             * State
             * @enum {string}
             */
            state: "idle" | "running" | "waiting_for_approval" | "completed" | "failed" | "stopped" | "cancelled";
            /**
             * Answer Id
             * @description ID of the answer's message, which may be partial.
             */
            answer_id: string | null;
            /**
             * Continues
             * @description ID of the run that this run continues: it waited for approval, or its server crashed or stopped.
             */
            continues?: string | null;
        };
        /**
         * SchemaFormat
         * @description Response format: JSON that matches a schema.
         */
        SchemaFormat: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "json_schema";
            json_schema: components["schemas"]["JsonSchema"];
        };
        /**
         * SchemaTextFormat
         * @description Format of the answer: JSON that matches a schema.
         */
        SchemaTextFormat: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "json_schema";
            /**
             * Name
             * @default answer
             */
            name?: string;
            /** Schema */
            schema: {
                [key: string]: unknown;
            };
        };
        /**
         * SearchResultBlock
         * @description A search result. The model receives its title, its source and its text.
         */
        SearchResultBlock: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "search_result";
            /**
             * Title
             * @default
             */
            title?: string;
            /**
             * Source
             * @default
             */
            source?: string;
            /** Content */
            content?: components["schemas"]["TextPart"][];
        };
        /**
         * ServerToolBlock
         * @description A call or a result of a tool that Anthropic runs. The model receives the text of a result.
         *
         *     The server leaves out a block without text, with a notice.
         */
        ServerToolBlock: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "bash_code_execution_tool_result" | "code_execution_tool_result" | "container_upload" | "mcp_tool_result" | "mcp_tool_use" | "server_tool_use" | "text_editor_code_execution_tool_result" | "tool_search_tool_result" | "web_fetch_tool_result" | "web_search_tool_result";
            /** Content */
            content?: unknown;
        };
        /**
         * Session
         * @description A session in a list.
         *
         *     ``owner`` is the ID of an API key, or `<key ID>/<user ID>`. It is absent if none owns it.
         */
        Session: {
            /** Session Id */
            session_id: string;
            /** Model */
            model: string;
            /** Created At */
            created_at: string;
            /** Updated At */
            updated_at: string;
            /** Message Count */
            message_count: number;
            /** Title */
            title: string | null;
            /** Preview */
            preview: string;
            /** Summary */
            summary: {
                summary: string;
                topics: string[];
            } | null;
            /** Summary Model */
            summary_model: string | null;
            /** Format Version */
            format_version: string;
            tool_settings: components["schemas"]["ToolSettings"];
            agent_settings: components["schemas"]["AgentSettings"];
            /**
             * Context Window Config
             * @description Context window of the session, in tokens, and its latest changes.
             */
            context_window_config: {
                dynamic_enabled: boolean;
                current_window: number | null;
                last_adjustment: string | null;
                adjustment_history: Record<string, never>[];
                manual_override: boolean;
            };
            /** Options */
            options: {
                [key: string]: unknown;
            } | null;
            /** Keep Alive */
            keep_alive: string | number | null;
            /** Think */
            think: boolean | string | null;
            /** Format */
            format: string | {
                [key: string]: unknown;
            } | null;
            /** Ollama Host */
            ollama_host: string | null;
            /** Tags */
            tags: string[];
            /** Pinned */
            pinned: boolean;
            /** Archived */
            archived: boolean;
            /** Temporary */
            temporary: boolean;
            /** Expires At */
            expires_at: string | null;
            /** Owner */
            owner?: string | null;
        };
        /**
         * SessionChanged
         * @description A new or changed session.
         *
         *     ``warnings`` lists what in the request cannot be used, or makes models reload.
         */
        SessionChanged: {
            /** Session Id */
            session_id: string;
            /** Model */
            model: string;
            /** Created At */
            created_at: string;
            /** Updated At */
            updated_at: string;
            /** Message Count */
            message_count: number;
            /** Title */
            title: string | null;
            /** Preview */
            preview: string;
            /** Summary */
            summary: {
                summary: string;
                topics: string[];
            } | null;
            /** Summary Model */
            summary_model: string | null;
            /** Format Version */
            format_version: string;
            tool_settings: components["schemas"]["ToolSettings"];
            agent_settings: components["schemas"]["AgentSettings"];
            /**
             * Context Window Config
             * @description Context window of the session, in tokens, and its latest changes.
             */
            context_window_config: {
                dynamic_enabled: boolean;
                current_window: number | null;
                last_adjustment: string | null;
                adjustment_history: Record<string, never>[];
                manual_override: boolean;
            };
            /** Options */
            options: {
                [key: string]: unknown;
            } | null;
            /** Keep Alive */
            keep_alive: string | number | null;
            /** Think */
            think: boolean | string | null;
            /** Format */
            format: string | {
                [key: string]: unknown;
            } | null;
            /** Ollama Host */
            ollama_host: string | null;
            /** Tags */
            tags: string[];
            /** Pinned */
            pinned: boolean;
            /** Archived */
            archived: boolean;
            /** Temporary */
            temporary: boolean;
            /** Expires At */
            expires_at: string | null;
            /** Warnings */
            warnings: components["schemas"]["WarningOut"][];
        };
        /**
         * SessionCreate
         * @description A new session.
         *
         *     If ``system_prompt`` has text, ``system_prompt_source_file`` is only a label, else it is read.
         * @example {
         *       "model": "qwen3:14b"
         *     }
         */
        SessionCreate: {
            /**
             * Title
             * @description One line. By default the server derives a title.
             */
            title?: string | null;
            /**
             * Options
             * @description Ollama's options, such as `temperature` or `seed`.
             */
            options?: {
                num_keep?: number | null;
                seed?: number | null;
                num_predict?: number | null;
                top_k?: number | null;
                top_p?: number | null;
                min_p?: number | null;
                typical_p?: number | null;
                repeat_last_n?: number | null;
                temperature?: number | null;
                repeat_penalty?: number | null;
                presence_penalty?: number | null;
                frequency_penalty?: number | null;
                stop?: string[] | null;
            } | null;
            /**
             * Keep Alive
             * @description How long Ollama keeps the model loaded: seconds, or a duration such as `5m`.
             */
            keep_alive?: string | number | null;
            /**
             * Think
             * @description Reasoning of models that can think: on, off or a level.
             */
            think?: boolean | ("low" | "medium" | "high" | "max") | null;
            /**
             * Format
             * @description Format of answers: `json` or a JSON schema.
             */
            format?: "json" | {
                [key: string]: unknown;
            } | null;
            /** @description Tools, and the calls that need approval. */
            tool_settings?: components["schemas"]["ToolSettingsRequest"] | null;
            /** @description Agents that the model may call. */
            agent_settings?: components["schemas"]["AgentSettingsRequest"] | null;
            /**
             * Tags
             * @description Labels by which lists can be filtered.
             */
            tags?: string[] | null;
            /**
             * Pinned
             * @description Whether lists with `pinned=first` begin with the session.
             */
            pinned?: boolean | null;
            /**
             * Archived
             * @description Whether lists with `archived=false` leave out the session.
             */
            archived?: boolean | null;
            /**
             * Temporary
             * @description Whether the server deletes the session when it has not changed for `MOCHI_TEMPORARY_SESSION_HOURS`. Lists leave it out.
             */
            temporary?: boolean | null;
            /**
             * Expires At
             * @description Time from which the server deletes the session.
             */
            expires_at?: string | null;
            /**
             * Model
             * @description Chat model of Ollama. The tag is optional.
             */
            model: string;
            /**
             * System Prompt
             * @description Text of the system message.
             */
            system_prompt?: string | null;
            /**
             * System Prompt Source File
             * @description Prompt file to load, or label of `system_prompt`.
             */
            system_prompt_source_file?: string | null;
        };
        /**
         * SessionDetail
         * @description A session with its messages.
         *
         *     The bytes of an image in ``images`` are at ``blobs/{sha256}``, and those of a file in
         *     ``attachments`` at ``files/{sha256}``.
         */
        SessionDetail: {
            /** Session Id */
            session_id: string;
            /** Model */
            model: string;
            /** Created At */
            created_at: string;
            /** Updated At */
            updated_at: string;
            /** Message Count */
            message_count: number;
            /** Title */
            title: string | null;
            /** Preview */
            preview: string;
            /** Summary */
            summary: {
                summary: string;
                topics: string[];
            } | null;
            /** Summary Model */
            summary_model: string | null;
            /** Format Version */
            format_version: string;
            tool_settings: components["schemas"]["ToolSettings"];
            agent_settings: components["schemas"]["AgentSettings"];
            /**
             * Context Window Config
             * @description Context window of the session, in tokens, and its latest changes.
             */
            context_window_config: {
                dynamic_enabled: boolean;
                current_window: number | null;
                last_adjustment: string | null;
                adjustment_history: Record<string, never>[];
                manual_override: boolean;
            };
            /** Options */
            options: {
                [key: string]: unknown;
            } | null;
            /** Keep Alive */
            keep_alive: string | number | null;
            /** Think */
            think: boolean | string | null;
            /** Format */
            format: string | {
                [key: string]: unknown;
            } | null;
            /** Ollama Host */
            ollama_host: string | null;
            /** Tags */
            tags: string[];
            /** Pinned */
            pinned: boolean;
            /** Archived */
            archived: boolean;
            /** Temporary */
            temporary: boolean;
            /** Expires At */
            expires_at: string | null;
            /** Messages */
            messages: components["schemas"]["StoredMessage"][];
            /**
             * Versions
             * @description Number of versions by message ID, for the messages that have versions.
             */
            versions: {
                [key: string]: components["schemas"]["VersionCount"];
            };
        };
        /**
         * SessionFile
         * @description Exported session.
         *
         *     `blobs` maps the SHA-256 of each image or file, in hex, to its bytes in base64. `message_id` of
         *     a version is the message that is shown at its place.
         */
        SessionFile: {
            metadata: components["schemas"]["FileMetadata"];
            /** Messages */
            messages: components["schemas"]["FileMessage"][];
            /**
             * Blobs
             * @default null
             */
            blobs?: {
                [key: string]: string;
            } | null;
            /**
             * Versions
             * @default null
             */
            versions?: components["schemas"]["FileVersion"][] | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * SessionFork
         * @description The last message to copy to the fork, by index or ID.
         *
         *     The default is the last message after which each tool call has a result.
         */
        SessionFork: {
            /**
             * Message Index
             * @description Index, starting at 0.
             */
            message_index?: number | null;
            /**
             * Message Id
             * @description ID of the last message to copy.
             */
            message_id?: string | null;
        };
        /**
         * SessionImport
         * @description One or more sessions of this server, or conversations of another program.
         *
         *     The other programs are ChatGPT, Claude, LibreChat and Open WebUI.
         */
        SessionImport: components["schemas"]["SessionFile"] | components["schemas"]["OpenWebUIChat"] | components["schemas"]["ChatGPTChat"] | components["schemas"]["ClaudeChat"] | components["schemas"]["LibreChatChat"] | (components["schemas"]["SessionFile"] | components["schemas"]["OpenWebUIChat"] | components["schemas"]["ChatGPTChat"] | components["schemas"]["ClaudeChat"] | components["schemas"]["LibreChatChat"])[];
        /**
         * SessionList
         * @description Sessions, the most recently changed first.
         *
         *     With ``pinned=first``, pinned sessions precede all others.
         */
        SessionList: {
            /** Sessions */
            sessions: components["schemas"]["Session"][];
        };
        /**
         * SessionPatch
         * @description Changes of a session.
         *
         *     Absent fields are kept, null clears a field, and nested objects are replaced completely.
         * @example {
         *       "title": "Paris"
         *     }
         */
        SessionPatch: {
            /**
             * Title
             * @description One line. By default the server derives a title.
             */
            title?: string | null;
            /**
             * Options
             * @description Ollama's options, such as `temperature` or `seed`.
             */
            options?: {
                num_keep?: number | null;
                seed?: number | null;
                num_predict?: number | null;
                top_k?: number | null;
                top_p?: number | null;
                min_p?: number | null;
                typical_p?: number | null;
                repeat_last_n?: number | null;
                temperature?: number | null;
                repeat_penalty?: number | null;
                presence_penalty?: number | null;
                frequency_penalty?: number | null;
                stop?: string[] | null;
            } | null;
            /**
             * Keep Alive
             * @description How long Ollama keeps the model loaded: seconds, or a duration such as `5m`.
             */
            keep_alive?: string | number | null;
            /**
             * Think
             * @description Reasoning of models that can think: on, off or a level.
             */
            think?: boolean | ("low" | "medium" | "high" | "max") | null;
            /**
             * Format
             * @description Format of answers: `json` or a JSON schema.
             */
            format?: "json" | {
                [key: string]: unknown;
            } | null;
            /** @description Tools, and the calls that need approval. */
            tool_settings?: components["schemas"]["ToolSettingsRequest"] | null;
            /** @description Agents that the model may call. */
            agent_settings?: components["schemas"]["AgentSettingsRequest"] | null;
            /**
             * Tags
             * @description Labels by which lists can be filtered.
             */
            tags?: string[] | null;
            /**
             * Pinned
             * @description Whether lists with `pinned=first` begin with the session.
             */
            pinned?: boolean | null;
            /**
             * Archived
             * @description Whether lists with `archived=false` leave out the session.
             */
            archived?: boolean | null;
            /**
             * Temporary
             * @description Whether the server deletes the session when it has not changed for `MOCHI_TEMPORARY_SESSION_HOURS`. Lists leave it out.
             */
            temporary?: boolean | null;
            /**
             * Expires At
             * @description Time from which the server deletes the session.
             */
            expires_at?: string | null;
            /**
             * Model
             * @description Chat model of Ollama. The tag is optional.
             */
            model?: string;
            /**
             * Summary Model
             * @description Model for summaries if `model` cannot write them.
             */
            summary_model?: string | null;
            /** @description Null restores the automatic window. */
            context_window?: components["schemas"]["WindowOverride"] | null;
            /**
             * Ollama Host
             * @description Name of the only Ollama host that may answer. Null: any host.
             */
            ollama_host?: string | null;
        };
        /**
         * SessionStatus
         * @description State of a session: its context window, tools, agents and summary.
         */
        SessionStatus: {
            /** Session Id */
            session_id: string;
            /** Model */
            model: string;
            /** Message Count */
            message_count: number;
            context_window: components["schemas"]["WindowStatus"];
            /** @description Null if Ollama reported no evaluation. */
            prompt_evaluation: components["schemas"]["PromptEvaluation"] | null;
            /** Tools Enabled */
            tools_enabled: boolean;
            /**
             * Active Tools
             * @description Enabled tools that exist, including the tools of the group.
             */
            active_tools: string[];
            /**
             * Missing Tools
             * @description Enabled tools and tool group that do not exist.
             */
            missing_tools: string[];
            /**
             * Execution Policy
             * @description Tool policy of the next turn: that of the session, or a stricter one of the API key.
             */
            execution_policy: string;
            /** Agents Enabled */
            agents_enabled: boolean;
            /**
             * Enabled Agents
             * @description Enabled agents that exist and are valid.
             */
            enabled_agents: string[];
            /**
             * Missing Agents
             * @description Enabled agents that do not exist or are invalid.
             */
            missing_agents: string[];
            /** System Prompt File */
            system_prompt_file: string | null;
            /** Summary */
            summary: {
                summary: string;
                topics: string[];
            } | null;
            /** Summary Model */
            summary_model: string | null;
            /**
             * Ollama Host
             * @description Host to which the session is pinned, or null.
             */
            ollama_host: string | null;
            /**
             * Last Host
             * @description `name` of the host of the latest turn, and the `reason` of the choice: `only_host`, `pinned`, `prompt_cached`, `least_time`, `hash` (equal times), `only_up` or `failover`. Null if unknown.
             */
            last_host: {
                [key: string]: string;
            } | null;
        };
        /**
         * SessionsImported
         * @description The imported sessions, in the order of the imported file.
         *
         *     ``warnings`` names turns that were left out, and counts other contents that were left out.
         */
        SessionsImported: {
            /** Sessions */
            sessions: components["schemas"]["Session"][];
            /** Warnings */
            warnings: components["schemas"]["WarningOut"][];
        };
        /**
         * @description All text and reasoning of the turn up to this event.
         *
         *     It replaces events that are no longer stored, or an answer that did not fit the schema in
         *     `format`.
         */
        Snapshot: {
            content: string;
            thinking: string;
        };
        /**
         * @description `snapshot`: All text and reasoning of the turn up to this event.
         *
         *     It replaces events that are no longer stored, or an answer that did not fit the schema in
         *     `format`.
         */
        SnapshotEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "snapshot";
            data: components["schemas"]["Snapshot"];
        };
        /**
         * @description The turn waits for the model.
         *
         *     `elapsed` is the time since the start of the turn, in seconds.
         *
         *     - `queued`: Ollama serves other requests first. `position` is the place in this server's
         *       queue, starting at 1, and absent if Ollama itself lets the request wait.
         *     - `failover`: an Ollama host failed, and the request goes to the next one, whose name is
         *       `host`.
         *     - `loading_model`: Ollama loads the model.
         *     - `processing_prompt`: Ollama evaluates the prompt.
         *     - `compacting`: the model summarizes the oldest turns.
         *     - `continued`: a turn continues that waited for approval, or whose server crashed or stopped.
         *       `continues` is the ID of its run until then.
         */
        Status: {
            state: string;
            elapsed: number;
            position?: number | null;
            host?: string | null;
            continues?: string | null;
        };
        /**
         * @description `status`: The turn waits for the model.
         *
         *     `elapsed` is the time since the start of the turn, in seconds.
         *
         *     - `queued`: Ollama serves other requests first. `position` is the place in this server's
         *       queue, starting at 1, and absent if Ollama itself lets the request wait.
         *     - `failover`: an Ollama host failed, and the request goes to the next one, whose name is
         *       `host`.
         *     - `loading_model`: Ollama loads the model.
         *     - `processing_prompt`: Ollama evaluates the prompt.
         *     - `compacting`: the model summarizes the oldest turns.
         *     - `continued`: a turn continues that waited for approval, or whose server crashed or stopped.
         *       `continues` is the ID of its run until then.
         */
        StatusEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "status";
            data: components["schemas"]["Status"];
        };
        /**
         * @description A client stopped the turn.
         *
         *     `message_id` is the ID of the stored partial answer, or null. `done` follows.
         */
        Stopped: {
            message_id: string | null;
        };
        /**
         * @description `stopped`: A client stopped the turn.
         *
         *     `message_id` is the ID of the stored partial answer, or null. `done` follows.
         */
        StoppedEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "stopped";
            data: components["schemas"]["Stopped"];
        };
        /**
         * StoredMessage
         * @description A stored message. Messages of all roles have the first four fields. The other fields depend on the role.
         */
        StoredMessage: {
            /**
             * Role
             * @enum {string}
             */
            role: "system" | "user" | "assistant" | "tool";
            /** Content */
            content: string;
            /** Message Id */
            message_id: string;
            /** Timestamp */
            timestamp: string;
            /**
             * Source File
             * @description system: prompt file of the message.
             */
            source_file?: string | null;
            /**
             * Images
             * @description user and tool: images of the message.
             */
            images?: components["schemas"]["ImageReference"][] | null;
            /**
             * Attachments
             * @description user: files of the message.
             */
            attachments?: components["schemas"]["AttachmentReference"][] | null;
            /**
             * Model
             * @description assistant: model that answered.
             */
            model?: string | null;
            /**
             * Thinking
             * @description assistant: reasoning of the model.
             */
            thinking?: string | null;
            /**
             * Raw
             * @description assistant: text of the model, if the server has repaired it.
             */
            raw?: string | null;
            /**
             * Tool Calls
             * @description assistant: tool calls of the model.
             */
            tool_calls?: components["schemas"]["ToolCall"][] | null;
            /**
             * Client Tool Calls
             * @description assistant: IDs of the tool calls that the client runs.
             */
            client_tool_calls?: string[] | null;
            /**
             * Eval Count
             * @description assistant: number of tokens of the answer.
             */
            eval_count?: number | null;
            /**
             * Prompt Eval Count
             * @description assistant: number of tokens of the prompt.
             */
            prompt_eval_count?: number | null;
            /**
             * Prompt Eval Cached Count
             * @description assistant: prompt tokens that were in the cache.
             */
            prompt_eval_cached_count?: number | null;
            /**
             * Total Duration
             * @description assistant: time of the whole request, in nanoseconds.
             */
            total_duration?: number | null;
            /**
             * Load Duration
             * @description assistant: time to load the model, in nanoseconds.
             */
            load_duration?: number | null;
            /**
             * Prompt Eval Duration
             * @description assistant: time to read the prompt, in nanoseconds.
             */
            prompt_eval_duration?: number | null;
            /**
             * Eval Duration
             * @description assistant: time to generate the answer, in nanoseconds.
             */
            eval_duration?: number | null;
            /**
             * Done Reason
             * @description assistant: reason of the end, such as `stop` or `length`.
             */
            done_reason?: string | null;
            /**
             * Interrupted
             * @description assistant and tool: `true` if it was interrupted.
             */
            interrupted?: boolean | null;
            /**
             * Tool Name
             * @description tool: name of the tool.
             */
            tool_name?: string | null;
            /**
             * Tool Call Id
             * @description tool: ID of the tool call.
             */
            tool_call_id?: string | null;
            /**
             * Agent Name
             * @description tool: name of the agent that the call has run.
             */
            agent_name?: string | null;
            /**
             * Agent Session Id
             * @description tool: ID of the session of the agent that the call has run.
             */
            agent_session_id?: string | null;
            /**
             * Success
             * @description tool: whether the call succeeded.
             */
            success?: boolean | null;
            /**
             * Error Code
             * @description tool: code of the error.
             */
            error_code?: string | null;
            /**
             * Decided By
             * @description tool: what approved or denied the call.
             */
            decided_by?: ("policy" | "user" | "timeout") | null;
            /**
             * Confirmation Id
             * @description tool: ID of the latest request for the approval of the call.
             */
            confirmation_id?: string | null;
            /**
             * Arguments
             * @description tool: arguments of the call if the approval replaced those of the model.
             */
            arguments?: {
                [key: string]: unknown;
            } | null;
            /**
             * Result
             * @description tool: result of the tool if `content` also has notes of the approval.
             */
            result?: string | null;
            /**
             * Execution Time
             * @description tool: seconds that the tool or agent ran, if it has run.
             */
            execution_time?: number | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * StreamOptions
         * @description Options of a stream. If ``include_usage`` is true, a last chunk has the token counts.
         */
        StreamOptions: {
            /** Include Usage */
            include_usage?: boolean | null;
        };
        /**
         * SummarizeRequest
         * @description The model for the summary. The server stores the model as the session's ``summary_model``.
         * @example {
         *       "model": "qwen3:4b"
         *     }
         */
        SummarizeRequest: {
            /**
             * Model
             * @description Default: `model`, or `summary_model` if `model` cannot do it.
             */
            model?: string | null;
        };
        /**
         * SummaryOut
         * @description A summary and its model. All fields are null if there is no summary.
         */
        SummaryOut: {
            /** Summary */
            summary: string | null;
            /** Topics */
            topics: string[] | null;
            /** Model Used */
            model_used: string | null;
        };
        /**
         * SystemMessage
         * @description Instructions for the model.
         */
        SystemMessage: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            role: "developer" | "system";
            /** Content */
            content: string | components["schemas"]["TextPart"][];
        };
        /**
         * SystemPromptUpdate
         * @description A new system prompt.
         *
         *     If ``content`` has text, ``source_file`` is only a label, else it is read.
         * @example {
         *       "source_file": "helpful.md"
         *     }
         */
        SystemPromptUpdate: {
            /**
             * Content
             * @description Text of the system message.
             */
            content?: string | null;
            /**
             * Source File
             * @description Prompt file to load, or label of `content`.
             */
            source_file?: string | null;
        } | {
            content: string;
        } | {
            source_file: string;
        };
        /**
         * TagCount
         * @description A tag, and the number of sessions that have it.
         */
        TagCount: {
            /** Tag */
            tag: string;
            /** Count */
            count: number;
        };
        /**
         * TagList
         * @description Tags, the most frequent first.
         */
        TagList: {
            /** Tags */
            tags: components["schemas"]["TagCount"][];
        };
        /**
         * TextChoice
         * @description The answer of a text completion. A completion has exactly one choice.
         */
        TextChoice: {
            /** Index */
            index: number;
            /** Text */
            text: string;
            /** Logprobs */
            logprobs: null;
            /**
             * Finish Reason
             * @enum {string}
             */
            finish_reason: "stop" | "length" | "tool_calls";
        };
        /**
         * TextCompletion
         * @description A complete answer as text.
         */
        TextCompletion: {
            /** Id */
            id: string;
            /** Created */
            created: number;
            /** Model */
            model: string;
            usage: components["schemas"]["Usage"];
            mochi: components["schemas"]["MochiExtension"];
            /**
             * Object
             * @constant
             */
            object: "text_completion";
            /** Choices */
            choices: components["schemas"]["TextChoice"][];
        };
        /**
         * TextCompletionRequest
         * @description A prompt to complete. The model receives it as a user message. Unknown fields are ignored.
         * @example {
         *       "model": "qwen3:14b",
         *       "prompt": "Once upon a time"
         *     }
         */
        TextCompletionRequest: {
            /**
             * Model
             * @description Model of Ollama, or `agent:NAME`.
             */
            model: string;
            /**
             * Stream
             * @description Stream the answer.
             */
            stream?: boolean | null;
            /** @description `session_id` is the session of the turn. */
            metadata?: components["schemas"]["Metadata"] | null;
            /**
             * Temperature
             * @description Sampling temperature.
             */
            temperature?: number | null;
            /**
             * Top P
             * @description Nucleus sampling: cumulative probability of candidates.
             */
            top_p?: number | null;
            /**
             * Frequency Penalty
             * @description Penalty for frequent tokens.
             */
            frequency_penalty?: number | null;
            /**
             * Presence Penalty
             * @description Penalty for tokens that already occurred.
             */
            presence_penalty?: number | null;
            /**
             * Seed
             * @description The same seed and request give the same answer.
             */
            seed?: number | null;
            /**
             * Stop
             * @description Stop sequences. The answer ends before them.
             */
            stop?: string | string[] | null;
            /**
             * Top K
             * @description Number of candidates for the next token. Not in OpenAI's API.
             */
            top_k?: number | null;
            /**
             * Min P
             * @description Minimum probability of candidates. Not in OpenAI's API.
             */
            min_p?: number | null;
            /**
             * Repeat Penalty
             * @description Penalty. Not in OpenAI's API.
             */
            repeat_penalty?: number | null;
            /**
             * Reasoning Effort
             * @description Level of reasoning of a model that can think.
             */
            reasoning_effort?: ("none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "ultra" | "max") | null;
            /** @description `effort` overrides `reasoning_effort`. */
            reasoning?: components["schemas"]["ReasoningOptions"] | null;
            /**
             * Think
             * @description Ollama's name of `reasoning_effort`, which overrides it.
             */
            think?: boolean | ("none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "ultra" | "max") | null;
            /** @description `enable_thinking` applies if no other field sets the level of reasoning. */
            chat_template_kwargs?: components["schemas"]["ChatTemplateOptions"] | null;
            /**
             * Keep Alive
             * @description How long Ollama keeps the model loaded: seconds, or a duration such as `5m`.
             */
            keep_alive?: string | number | null;
            /**
             * Options
             * @description Only `{}` is supported. Use the fields of this request.
             */
            options?: unknown;
            /**
             * Num Ctx
             * @description Not supported. The server sets the context window.
             */
            num_ctx?: unknown;
            /**
             * N
             * @description Only 1 is supported.
             */
            n?: number | null;
            /**
             * Logit Bias
             * @description Only `{}` is supported.
             */
            logit_bias?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format
             * @description Not supported.
             */
            format?: unknown;
            /**
             * Prompt
             * @description One prompt.
             */
            prompt: string | string[];
            /** @description `include_usage` adds a chunk with token counts. */
            stream_options?: components["schemas"]["StreamOptions"] | null;
            /**
             * Max Tokens
             * @description Maximum tokens of the answer, with reasoning. -1 sets no limit.
             */
            max_tokens?: number | null;
            /**
             * Best Of
             * @description Only 1 is supported.
             */
            best_of?: number | null;
            /**
             * Echo
             * @description Only `false` is supported.
             */
            echo?: boolean | null;
            /**
             * Suffix
             * @description Only an empty text is supported.
             */
            suffix?: string | null;
            /**
             * Logprobs
             * @description Only `false` is supported.
             */
            logprobs?: boolean | null;
            /**
             * Response Format
             * @description Not supported.
             */
            response_format?: unknown;
            /**
             * Tools
             * @description Only an empty list is supported.
             */
            tools?: unknown;
            /**
             * Max Completion Tokens
             * @description Not supported.
             */
            max_completion_tokens?: unknown;
        };
        /**
         * TextOptions
         * @description Options for the text of the answer.
         */
        TextOptions: {
            /** Format */
            format?: (components["schemas"]["PlainFormat"] | components["schemas"]["SchemaTextFormat"]) | null;
        };
        /**
         * TextPart
         * @description Text of a message.
         */
        TextPart: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "text";
            /** Text */
            text: string;
        };
        /**
         * Thinking
         * @description Whether the model thinks. The server ignores `budget_tokens`.
         */
        Thinking: {
            /**
             * Type
             * @enum {string}
             */
            type: "enabled" | "adaptive" | "disabled";
        };
        /**
         * ThinkingBlock
         * @description Reasoning of a model. Only reasoning in clear text has an effect.
         */
        ThinkingBlock: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "redacted_thinking" | "thinking";
            /**
             * Thinking
             * @default
             */
            thinking?: string;
        };
        /**
         * @description A piece of the model's reasoning.
         *
         *     It is sent if the model can think and the request or session sets `think`.
         */
        ThinkingDelta: {
            content: string;
        };
        /**
         * @description `thinking_delta`: A piece of the model's reasoning.
         *
         *     It is sent if the model can think and the request or session sets `think`.
         */
        ThinkingDeltaEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "thinking_delta";
            data: components["schemas"]["ThinkingDelta"];
        };
        /**
         * @description Log probabilities of the tokens in the next `content_delta`, for a request to `/v1` with
         *     `logprobs`.
         */
        TokenLogprobs: {
            logprobs: {
                [key: string]: unknown;
            }[];
        };
        /**
         * @description `logprobs`: Log probabilities of the tokens in the next `content_delta`, for a request to `/v1` with
         *     `logprobs`.
         */
        TokenLogprobsEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "logprobs";
            data: components["schemas"]["TokenLogprobs"];
        };
        /**
         * Tool
         * @description A tool that the client runs. The server omits tools that Anthropic defines.
         */
        Tool: {
            /** Name */
            name: string;
            /** Description */
            description?: string | null;
            /** Input Schema */
            input_schema?: {
                [key: string]: unknown;
            } | null;
            /** Type */
            type?: string | null;
        };
        /**
         * ToolCall
         * @description A tool call in Ollama's format.
         */
        ToolCall: {
            /** Id */
            id: string;
            function: components["schemas"]["ToolCallFunction"];
        } & {
            [key: string]: unknown;
        };
        /**
         * ToolCallExecuted
         * @description A tool call of the turn and its result. ``execution_time`` is in seconds.
         */
        ToolCallExecuted: {
            /** Call Index */
            call_index: number;
            /** Tool Name */
            tool_name: string;
            /** Arguments */
            arguments: {
                [key: string]: unknown;
            };
            /** Success */
            success: boolean;
            /** Result */
            result: string | null;
            /** Error Message */
            error_message: string | null;
            /** Error Code */
            error_code: string | null;
            /** Execution Time */
            execution_time: number;
        };
        /**
         * ToolCallFunction
         * @description Function of a tool call.
         *
         *     ``index`` is the position of the call among the tool calls of the message.
         */
        ToolCallFunction: {
            /** Index */
            index?: number;
            /** Name */
            name: string;
            /** Arguments */
            arguments: {
                [key: string]: unknown;
            };
            /** Raw Arguments */
            raw_arguments?: string;
            /** Defect */
            defect?: string;
        } & {
            [key: string]: unknown;
        };
        /**
         * @description A tool call that needs no approval starts.
         *
         *     A call that waited for approval has `tool_call_confirmation_required` instead.
         */
        ToolCalled: {
            tool_name: string;
            arguments: {
                [key: string]: unknown;
            };
            call_index: number;
        };
        /**
         * @description `tool_call`: A tool call that needs no approval starts.
         *
         *     A call that waited for approval has `tool_call_confirmation_required` instead.
         */
        ToolCalledEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "tool_call";
            data: components["schemas"]["ToolCalled"];
        };
        /**
         * ToolChoice
         * @description Whether the model may or must call a tool. `tool` requires a call of the tool ``name``.
         */
        ToolChoice: {
            /**
             * Type
             * @enum {string}
             */
            type: "auto" | "any" | "tool" | "none";
            /** Name */
            name?: string | null;
            /** Disable Parallel Tool Use */
            disable_parallel_tool_use?: boolean | null;
        };
        /**
         * @description A tool call waits for approval.
         *
         *     Send the decision to `confirm-tool`. An agent's call has an `agent_name`.
         */
        ToolConfirmationRequired: {
            tool_name: string;
            arguments: {
                [key: string]: unknown;
            };
            call_index: number;
            confirmation_id: string;
            agent_name: string | null;
        };
        /**
         * @description `tool_call_confirmation_required`: A tool call waits for approval.
         *
         *     Send the decision to `confirm-tool`. An agent's call has an `agent_name`.
         */
        ToolConfirmationRequiredEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "tool_call_confirmation_required";
            data: components["schemas"]["ToolConfirmationRequired"];
        };
        /** @description The tool results are sent to the model, which continues its answer. */
        ToolContinuationStart: {
            message: string;
        };
        /** @description `tool_continuation_start`: The tool results are sent to the model, which continues its answer. */
        ToolContinuationStartEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "tool_continuation_start";
            data: components["schemas"]["ToolContinuationStart"];
        };
        /**
         * ToolDecided
         * @description The decision on a tool call.
         */
        ToolDecided: {
            /** Confirmation Id */
            confirmation_id: string;
            /** Approved */
            approved: boolean;
            /** Tool Name */
            tool_name: string;
            /** Arguments */
            arguments: {
                [key: string]: unknown;
            };
        };
        /**
         * ToolDecision
         * @description Decision on a pending tool call: approve or deny it.
         * @example {
         *       "approved": true,
         *       "confirmation_id": "6f1e2d3c4b5a"
         *     }
         */
        ToolDecision: {
            /**
             * Confirmation Id
             * @description ID of the pending tool call, from its event or from the list.
             */
            confirmation_id: string;
            /**
             * Approved
             * @description `true` runs the call, `false` denies it.
             */
            approved: boolean;
            /**
             * Arguments
             * @description New arguments, which replace the model's arguments.
             */
            arguments?: {
                [key: string]: unknown;
            } | null;
            /**
             * Reason
             * @description Reason that the model receives.
             */
            reason?: string | null;
            /**
             * Remember
             * @description `session` also approves later calls.
             * @default once
             */
            remember?: ("once" | "session") | null;
        };
        /**
         * ToolDetails
         * @description A tool with the JSON schema that models receive.
         */
        ToolDetails: {
            /** Name */
            name: string;
            /** Description */
            description: string;
            /** Parameters */
            parameters: {
                [key: string]: components["schemas"]["ToolParameter"];
            };
            /** Destructive */
            destructive: boolean;
            /** Schema */
            schema: {
                [key: string]: unknown;
            };
        };
        /**
         * ToolExecution
         * @description A finished tool call. ``execution_time`` is in seconds.
         */
        ToolExecution: {
            /** Tool Name */
            tool_name: string;
            /** Success */
            success: boolean;
            /** Result */
            result: string | null;
            /** Error Message */
            error_message: string | null;
            /** Execution Time */
            execution_time: number;
            /** Timestamp */
            timestamp: string;
        };
        /**
         * ToolExecutionPolicy
         * @description Policy that determines which tool calls need approval.
         * @enum {string}
         */
        ToolExecutionPolicy: "always_confirm" | "never_confirm" | "confirm_destructive";
        /**
         * ToolList
         * @description All tools, tool groups and problems.
         *
         *     The tools of each MCP server form a group with its name or ``mcp:NAME``.
         */
        ToolList: {
            /** Tools */
            tools: {
                [key: string]: components["schemas"]["ToolSummary"];
            };
            /** Groups */
            groups: {
                [key: string]: string[];
            };
            /** Problems */
            problems: components["schemas"]["ToolProblem"][];
        };
        /**
         * ToolMessage
         * @description The result of a tool call. Null is an empty result.
         */
        ToolMessage: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            role: "tool";
            /** Content */
            content?: (string | (components["schemas"]["TextPart"] | components["schemas"]["ImagePart"])[]) | null;
            /** Tool Call Id */
            tool_call_id: string;
        };
        /**
         * ToolParameter
         * @description A parameter of a tool. ``type`` is a Python type.
         */
        ToolParameter: {
            /** Type */
            type: string;
            /** Description */
            description: string;
        };
        /**
         * ToolProblem
         * @description A problem with a tool, a tool group, a file or an MCP server. ``name`` is its name.
         */
        ToolProblem: {
            /** Name */
            name: string;
            /** Message */
            message: string;
        };
        /**
         * ToolReferenceBlock
         * @description Name of a tool that the client has found. The request also defines the tool.
         */
        ToolReferenceBlock: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "tool_reference";
            /** Tool Name */
            tool_name: string;
        };
        /** @description The result of a tool call. */
        ToolResult: {
            tool_name: string;
            success: boolean;
            result: string | null;
            error_message: string | null;
            error_code: string | null;
            call_index: number;
        };
        /**
         * ToolResultBlock
         * @description The result of a tool call.
         */
        ToolResultBlock: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "tool_result";
            /** Tool Use Id */
            tool_use_id: string;
            /** Content */
            content?: (string | (components["schemas"]["TextPart"] | components["schemas"]["ImageBlock"] | components["schemas"]["DocumentBlock"] | components["schemas"]["SearchResultBlock"] | components["schemas"]["ToolReferenceBlock"])[]) | null;
            /** Is Error */
            is_error?: boolean | null;
        };
        /** @description `tool_result`: The result of a tool call. */
        ToolResultEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "tool_result";
            data: components["schemas"]["ToolResult"];
        };
        /**
         * ToolSettings
         * @description Tools that a session may use: the union of ``tools`` and the tools of ``tool_group``.
         *
         *     ``tool_group`` is a group of ``GET /tools``: a group of the tools directory, or else the tools
         *     of an MCP server.
         */
        ToolSettings: {
            /** Tools */
            tools?: string[];
            /** Tool Group */
            tool_group?: string | null;
            /** @default always_confirm */
            execution_policy?: components["schemas"]["ToolExecutionPolicy"];
        } & {
            [key: string]: unknown;
        };
        /**
         * ToolSettingsRequest
         * @description Tools that the model may call, and the calls that need approval.
         */
        ToolSettingsRequest: {
            /** Tools */
            tools?: string[];
            /** Tool Group */
            tool_group?: string | null;
            /** @default always_confirm */
            execution_policy?: components["schemas"]["ToolExecutionPolicy"];
            /**
             * Approved Tools
             * @description Tools that are approved for the whole session.
             */
            approved_tools?: string[] | null;
        };
        /**
         * ToolSummary
         * @description A tool.
         *
         *     Under the policy ``confirm_destructive``, calls of ``destructive`` tools need approval.
         */
        ToolSummary: {
            /** Name */
            name: string;
            /** Description */
            description: string;
            /** Parameters */
            parameters: {
                [key: string]: components["schemas"]["ToolParameter"];
            };
            /** Destructive */
            destructive: boolean;
        };
        /**
         * ToolUseBlock
         * @description A tool call of the model.
         */
        ToolUseBlock: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "tool_use";
            /** Id */
            id: string;
            /** Name */
            name: string;
            /** Input */
            input: string | {
                [key: string]: unknown;
            } | unknown[] | null;
        };
        /**
         * @description The turn failed. The answer up to this point is stored. `done` still follows.
         *
         *     `retry_after` is the time in seconds after which the client can repeat the request, if Ollama
         *     is busy.
         */
        TurnError: {
            code: string;
            message: string;
            details: {
                [key: string]: unknown;
            };
            retry_after: number | null;
        };
        /**
         * @description `error`: The turn failed. The answer up to this point is stored. `done` still follows.
         *
         *     `retry_after` is the time in seconds after which the client can repeat the request, if Ollama
         *     is busy.
         */
        TurnErrorEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "error";
            data: components["schemas"]["TurnError"];
        };
        /**
         * @description A problem that does not end the turn.
         *
         *     - `THINKING_NOT_SUPPORTED`, `TOOLS_NOT_SUPPORTED`, `IMAGES_NOT_SUPPORTED`: the model lacks
         *       this capability.
         *     - `IMAGE_NOT_READABLE`: the model cannot decode an image of an earlier message. The earlier
         *       images were left out.
         *     - `IMAGE_NOT_FOUND`: images of the history are no longer stored and were left out.
         *     - `FILE_NOT_FOUND`: files of the history are no longer stored and were left out.
         *     - `TOOL_LIMIT_REACHED`: the model reached the limit of tool calls and now answers without
         *       tools.
         *     - `TOOL_CALLS_LEFT_OUT`: one answer had more distinct tool calls than the limit. The others
         *       were left out.
         *     - `VERSIONS_REMOVED`: the oldest versions of the session exceeded a limit and were removed.
         *     - `TOOL_CHANGED`: a tool changed while its call waited for approval. The call needs approval
         *       again.
         *     - `FORMAT_NOT_CHECKED`: the server cannot check whether the answer fits the JSON schema in
         *       `format`.
         *     - `ANSWER_REPAIRED`: the model wrote reasoning or a tool call as text, or markers of its
         *       format. The server moved them to where they belong.
         *     - `ANSWER_REPEATED`: Ollama could not read a tool call of the model, and the request was sent
         *       again.
         *     - `EMPTY_ANSWER`: the answer has neither text nor tool calls. The message has the reason.
         *     - `ANSWER_CUT`: the answer filled the context window and was cut.
         *     - `WINDOW_DIFFERS`: Ollama reloads the model, because a session's manual context window
         *       differs from the window of other sessions with the model.
         *     - `PROMPT_TRUNCATED`: Ollama cut the prompt.
         *     - `MODEL_NOT_FOUND`: Ollama does not have the model of an agent, and the session's model
         *       answers instead. Or it does not have the model of imported sessions.
         *     - `TOOL_NOT_FOUND`, `AGENT_NOT_FOUND`: the session enables a tool, tool group or agent that
         *       does not exist, or an agent names an MCP tool that does not exist.
         *     - `AGENT_INVALID`: the session enables an agent whose files are incomplete or invalid.
         *     - `CONTENT_LEFT_OUT`: an import left out contents of one kind, such as files.
         *     - `TURN_LEFT_OUT`: a turn in an imported session waited for approval. It does not continue.
         */
        TurnWarning: {
            code: string;
            message: string;
        };
        /**
         * @description `warning`: A problem that does not end the turn.
         *
         *     - `THINKING_NOT_SUPPORTED`, `TOOLS_NOT_SUPPORTED`, `IMAGES_NOT_SUPPORTED`: the model lacks
         *       this capability.
         *     - `IMAGE_NOT_READABLE`: the model cannot decode an image of an earlier message. The earlier
         *       images were left out.
         *     - `IMAGE_NOT_FOUND`: images of the history are no longer stored and were left out.
         *     - `FILE_NOT_FOUND`: files of the history are no longer stored and were left out.
         *     - `TOOL_LIMIT_REACHED`: the model reached the limit of tool calls and now answers without
         *       tools.
         *     - `TOOL_CALLS_LEFT_OUT`: one answer had more distinct tool calls than the limit. The others
         *       were left out.
         *     - `VERSIONS_REMOVED`: the oldest versions of the session exceeded a limit and were removed.
         *     - `TOOL_CHANGED`: a tool changed while its call waited for approval. The call needs approval
         *       again.
         *     - `FORMAT_NOT_CHECKED`: the server cannot check whether the answer fits the JSON schema in
         *       `format`.
         *     - `ANSWER_REPAIRED`: the model wrote reasoning or a tool call as text, or markers of its
         *       format. The server moved them to where they belong.
         *     - `ANSWER_REPEATED`: Ollama could not read a tool call of the model, and the request was sent
         *       again.
         *     - `EMPTY_ANSWER`: the answer has neither text nor tool calls. The message has the reason.
         *     - `ANSWER_CUT`: the answer filled the context window and was cut.
         *     - `WINDOW_DIFFERS`: Ollama reloads the model, because a session's manual context window
         *       differs from the window of other sessions with the model.
         *     - `PROMPT_TRUNCATED`: Ollama cut the prompt.
         *     - `MODEL_NOT_FOUND`: Ollama does not have the model of an agent, and the session's model
         *       answers instead. Or it does not have the model of imported sessions.
         *     - `TOOL_NOT_FOUND`, `AGENT_NOT_FOUND`: the session enables a tool, tool group or agent that
         *       does not exist, or an agent names an MCP tool that does not exist.
         *     - `AGENT_INVALID`: the session enables an agent whose files are incomplete or invalid.
         *     - `CONTENT_LEFT_OUT`: an import left out contents of one kind, such as files.
         *     - `TURN_LEFT_OUT`: a turn in an imported session waited for approval. It does not continue.
         */
        TurnWarningEvent: {
            /**
             * @description ID of the run and number of the event. Send it as `Last-Event-ID` to resume.
             * @example 1f0c5e7a9b:42
             */
            id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "warning";
            data: components["schemas"]["TurnWarning"];
        };
        /**
         * UiMessage
         * @description A message of the AI SDK.
         *
         *     The server uses parts of the types `text` and `file`, and responses to approvals.
         */
        UiMessage: {
            /**
             * Id
             * @description ID of the message in the client. The same message is answered once.
             * @default
             */
            id?: string;
            /**
             * Role
             * @enum {string}
             */
            role: "system" | "user" | "assistant";
            /** Parts */
            parts: {
                [key: string]: unknown;
            }[];
        };
        /**
         * Usage
         * @description Ollama's token counts, summed over all requests of the turn.
         */
        Usage: {
            /** Prompt Tokens */
            prompt_tokens: number;
            /** Completion Tokens */
            completion_tokens: number;
            /** Total Tokens */
            total_tokens: number;
            prompt_tokens_details: components["schemas"]["PromptTokensDetails"];
        };
        /**
         * UsageEntry
         * @description Usage of one API key and model on one day in UTC, as Ollama counts it.
         */
        UsageEntry: {
            /**
             * Day
             * @example 2027-01-31
             */
            day: string;
            /**
             * Key
             * @description Name of the API key.
             */
            key: string;
            /** Model */
            model: string;
            /**
             * Requests
             * @description Number of complete answers and batches of embeddings.
             */
            requests: number;
            /**
             * Prompt Tokens
             * @description Tokens of prompts that were not in Ollama's cache.
             */
            prompt_tokens: number;
            /** Answer Tokens */
            answer_tokens: number;
        };
        /**
         * UsageLimits
         * @description Limits of an API key. Null is no limit.
         */
        UsageLimits: {
            /** Turns At A Time */
            turns_at_a_time: number | null;
            /** Turns Per Minute */
            turns_per_minute: number | null;
            /** Tokens Per Day */
            tokens_per_day: number | null;
        };
        /**
         * UsageReport
         * @description Usage of the API key of the request or, for the scope `all`, of all keys.
         */
        UsageReport: {
            /**
             * Key
             * @description Name of the API key of the request.
             */
            key: string | null;
            /** @description Limits of this key. */
            limits: components["schemas"]["UsageLimits"];
            /**
             * Tokens Today
             * @description Tokens of this key since midnight UTC.
             */
            tokens_today: number;
            /**
             * Usage
             * @description Usage by day, key and model, the newest first.
             */
            usage: components["schemas"]["UsageEntry"][];
        };
        /**
         * UserMessage
         * @description A message of the user.
         */
        UserMessage: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            role: "user";
            /** Content */
            content: string | (components["schemas"]["TextPart"] | components["schemas"]["ImagePart"] | components["schemas"]["FilePart"])[];
        };
        /**
         * Version
         * @description One of the alternatives at a message.
         */
        Version: {
            /**
             * Version Id
             * @description Null for the messages that are shown.
             */
            version_id: string | null;
            /** Is Shown */
            is_shown: boolean;
            /**
             * Created At
             * @description Time of the first message.
             */
            created_at: string;
            /**
             * Model
             * @description Model of the last answer. Null if there is no answer.
             */
            model: string | null;
            /**
             * Preview
             * @description The first 200 characters of the first message.
             */
            preview: string;
            /** Message Count */
            message_count: number;
        };
        /**
         * VersionCount
         * @description Number of versions at a message, including the shown one.
         *
         *     ``shown`` is the number of the shown one. The oldest version has the number 1.
         */
        VersionCount: {
            /** Count */
            count: number;
            /** Shown */
            shown: number;
        };
        /**
         * VersionList
         * @description Alternatives at a message, the oldest first. One of them is shown.
         */
        VersionList: {
            /** Session Id */
            session_id: string;
            /** Message Id */
            message_id: string;
            /** Versions */
            versions: components["schemas"]["Version"][];
        };
        /**
         * WarningOut
         * @description A problem that did not make the request fail. ``message`` is text for users.
         */
        WarningOut: {
            /**
             * Code
             * @example TOOL_NOT_FOUND
             */
            code: string;
            /** Message */
            message: string;
        };
        /**
         * WindowOverride
         * @description Manual context window in tokens, at most the model's maximum.
         *
         *     Null restores the automatic window.
         */
        WindowOverride: {
            /** Current Window */
            current_window: number | null;
        };
        /**
         * WindowStatus
         * @description Context window of a session.
         *
         *     Windows and usage are in tokens. ``usage_ratio`` is usage divided by window.
         */
        WindowStatus: {
            /** Dynamic Enabled */
            dynamic_enabled: boolean;
            /** Current Window */
            current_window: number | null;
            /** Model Max Context */
            model_max_context: number | null;
            /** Last Adjustment Reason */
            last_adjustment_reason: string | null;
            /** Manual Override */
            manual_override: boolean;
            /**
             * Manual Override Session Id
             * @description This session if it has a manual window, else null.
             */
            manual_override_session_id: string | null;
            /** Usage Tokens */
            usage_tokens: number | null;
            /** Usage Ratio */
            usage_ratio: number | null;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    chat: {
        parameters: {
            query?: never;
            header?: {
                /** @description Idempotency key. A repeated request with the same key returns the existing turn. */
                "Idempotency-Key"?: string | null;
            };
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ChatRequest"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ChatResponse"];
                };
            };
            /** @description The run of a turn in the background. */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunStatus"];
                };
            };
            /** @description `EMPTY_HISTORY` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "EMPTY_HISTORY",
                     *         "message": "Session '<session_id>' has no user message to answer. Send a `message`.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_NOT_FOUND`, `MODEL_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_BUSY`, `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_BUSY",
                     *         "message": "Session '<session_id>' is busy: a turn is running. Wait, or use POST /api/v1/chat/<session_id>/stop.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "run_id": "<run_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `IDEMPOTENCY_KEY_REUSED`, `VALIDATION_ERROR`, `CONTEXT_OVERFLOW` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "IDEMPOTENCY_KEY_REUSED",
                     *         "message": "The idempotency key '<idempotency_key>' was used for another message of this session. Use a new key.",
                     *         "details": {
                     *           "idempotency_key": "<idempotency_key>",
                     *           "run_id": "<run_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `RATE_LIMITED` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "RATE_LIMITED",
                     *         "message": "The limit of this API key is 1000. Send the request again in <retry_after> s.",
                     *         "details": {
                     *           "limit": 1000,
                     *           "retry_after": "<retry_after>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR`, `FORMAT_NOT_MET` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "OLLAMA_UNREACHABLE",
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "details": {
                     *           "ollama_host": "<host>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SHUTTING_DOWN`, `OLLAMA_BUSY`, `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SHUTTING_DOWN",
                     *         "message": "The server is shutting down and accepts no new sessions or turns. Try again later.",
                     *         "details": {
                     *           "retry_after": 5
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SERVER_LOST",
                     *         "message": "The server that runs the turn of session '<session_id>' does not respond. Load the session to see the stored messages. Send the request again later.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    resume_stream: {
        parameters: {
            query?: {
                /** @description ID or number of the last event received. `Last-Event-ID` takes precedence. */
                after?: string | null;
            };
            header?: {
                /** @description ID of the last event received. `EventSource` sends it. */
                "Last-Event-ID"?: string | null;
            };
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A stream of server-sent events. Each event is a `ChatStreamEvent`, and the last event is `done`. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example id: 1f0c5e7a9b:1
                     *     event: content_delta
                     *     data: {"content":"Paris","role":"assistant"}
                     *
                     *     id: 1f0c5e7a9b:2
                     *     event: done
                     *     data: {"session_id":"a1b2c3d4e5"}
                     */
                    "text/event-stream": string;
                };
            };
            /** @description There are no events after this position. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SERVER_LOST",
                     *         "message": "The server that runs the turn of session '<session_id>' does not respond. Load the session to see the stored messages. Send the request again later.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    stream_chat: {
        parameters: {
            query?: never;
            header?: {
                /** @description Idempotency key. A repeated request with the same key returns the existing turn. */
                "Idempotency-Key"?: string | null;
            };
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ChatRequest"] | null;
            };
        };
        responses: {
            /** @description A stream of server-sent events. Each event is a `ChatStreamEvent`, and the last event is `done`. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example id: 1f0c5e7a9b:1
                     *     event: content_delta
                     *     data: {"content":"Paris","role":"assistant"}
                     *
                     *     id: 1f0c5e7a9b:2
                     *     event: done
                     *     data: {"session_id":"a1b2c3d4e5"}
                     */
                    "text/event-stream": string;
                };
            };
            /** @description `EMPTY_HISTORY` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "EMPTY_HISTORY",
                     *         "message": "Session '<session_id>' has no user message to answer. Send a `message`.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_NOT_FOUND`, `MODEL_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_BUSY`, `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_BUSY",
                     *         "message": "Session '<session_id>' is busy: a turn is running. Wait, or use POST /api/v1/chat/<session_id>/stop.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "run_id": "<run_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `IDEMPOTENCY_KEY_REUSED`, `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "IDEMPOTENCY_KEY_REUSED",
                     *         "message": "The idempotency key '<idempotency_key>' was used for another message of this session. Use a new key.",
                     *         "details": {
                     *           "idempotency_key": "<idempotency_key>",
                     *           "run_id": "<run_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `RATE_LIMITED` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "RATE_LIMITED",
                     *         "message": "The limit of this API key is 1000. Send the request again in <retry_after> s.",
                     *         "details": {
                     *           "limit": 1000,
                     *           "retry_after": "<retry_after>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SHUTTING_DOWN`, `OLLAMA_BUSY`, `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SHUTTING_DOWN",
                     *         "message": "The server is shutting down and accepts no new sessions or turns. Try again later.",
                     *         "details": {
                     *           "retry_after": 5
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SERVER_LOST",
                     *         "message": "The server that runs the turn of session '<session_id>' does not respond. Load the session to see the stored messages. Send the request again later.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    stop_chat: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunStatus"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW`, `SESSION_BUSY` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SERVER_LOST",
                     *         "message": "The server that runs the turn of session '<session_id>' does not respond. Load the session to see the stored messages. Send the request again later.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_run: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunStatus"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SERVER_LOST",
                     *         "message": "The server that runs the turn of session '<session_id>' does not respond. Load the session to see the stored messages. Send the request again later.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_confirmations: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PendingConfirmations"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SERVER_LOST",
                     *         "message": "The server that runs the turn of session '<session_id>' does not respond. Load the session to see the stored messages. Send the request again later.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    confirm_tool: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ToolDecision"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ToolDecided"];
                };
            };
            /** @description The decision is stored, and the turn continues when Ollama responds again, or at the next server if this one is shutting down. */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ToolDecided"];
                };
            };
            /** @description `SESSION_NOT_FOUND`, `CONFIRMATION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `TOOL_CONFIRMATION_TIMEOUT` */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "TOOL_CONFIRMATION_TIMEOUT",
                     *         "message": "The tool call was denied: no decision arrived within MOCHI_TOOL_CONFIRMATION_TIMEOUT_SECONDS.",
                     *         "details": {
                     *           "confirmation_id": "<confirmation_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `CONFIRMATION_RESOLVED`, `CONFIRMATION_STALE`, `SESSION_BUSY`, `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "CONFIRMATION_RESOLVED",
                     *         "message": "This tool call was already decided.",
                     *         "details": {
                     *           "confirmation_id": "<confirmation_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `RATE_LIMITED` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "RATE_LIMITED",
                     *         "message": "The limit of this API key is 1000. Send the request again in <retry_after> s.",
                     *         "details": {
                     *           "limit": 1000,
                     *           "retry_after": "<retry_after>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SERVER_LOST",
                     *         "message": "The server that runs the turn of session '<session_id>' does not respond. Load the session to see the stored messages. Send the request again later.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_sessions: {
        parameters: {
            query?: {
                /** @description Words to search for. Title and messages must contain all of them. */
                q?: string | null;
                /** @description Maximum number of sessions. Default: all. */
                limit?: number | null;
                /** @description Number of sessions to skip. */
                offset?: number;
                /** @description Owner of the sessions: the ID of an API key, or `<key ID>/<user ID>`. */
                owner?: string | null;
                /** @description Only sessions with this tag. Repeat it for sessions that have several tags. */
                tag?: string[] | null;
                /** @description Only archived sessions, or only others. Default: both. */
                archived?: boolean | null;
                /** @description Only temporary sessions. By default they are left out. */
                temporary?: boolean;
                /** @description `first`: the list begins with pinned sessions. */
                pinned?: "first" | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    /** @description Number of sessions on all pages. */
                    "X-Total-Count"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionList"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    create_session: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SessionCreate"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionChanged"];
                };
            };
            /** @description `MODEL_NOT_FOUND`, `PROMPT_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "MODEL_NOT_FOUND",
                     *         "message": "There is no chat model '<model>'. To install '<model>', run `ollama pull <model>`.",
                     *         "details": {
                     *           "model": "<model>",
                     *           "chat_models": []
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "OLLAMA_UNREACHABLE",
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "details": {
                     *           "ollama_host": "<host>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_BUSY`, `STORAGE_BUSY`, `SHUTTING_DOWN` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "OLLAMA_BUSY",
                     *         "message": "Ollama is busy: <reason>. Try again in 2 seconds.",
                     *         "details": {
                     *           "upstream_status": 503,
                     *           "retry_after": 2
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    import_sessions: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SessionImport"];
                "application/zip": string;
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionsImported"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `BODY_TOO_LARGE` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "BODY_TOO_LARGE",
                     *         "message": "The ZIP file unpacks to more than 1000 bytes, the limit of MOCHI_MAX_BODY_BYTES.",
                     *         "details": {
                     *           "limit": 1000
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY`, `SHUTTING_DOWN` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_tags: {
        parameters: {
            query?: {
                /** @description Owner of the sessions: the ID of an API key, or `<key ID>/<user ID>`. */
                owner?: string | null;
                /** @description Only archived sessions, or only others. Default: both. */
                archived?: boolean | null;
                /** @description Only temporary sessions. By default they are left out. */
                temporary?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TagList"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_session: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionDetail"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    delete_session: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    patch_session: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SessionPatch"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionChanged"];
                };
            };
            /** @description `SESSION_NOT_FOUND`, `MODEL_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "OLLAMA_UNREACHABLE",
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "details": {
                     *           "ollama_host": "<host>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY`, `OLLAMA_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    fork_session: {
        parameters: {
            query?: {
                /** @description Whether to include the versions of messages. */
                versions?: boolean;
            };
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["SessionFork"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionDetail"];
                };
            };
            /** @description `INVALID_MESSAGE_INDEX` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INVALID_MESSAGE_INDEX",
                     *         "message": "Message 3 cannot be used: <reason>.",
                     *         "details": {
                     *           "index": 3
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY`, `SHUTTING_DOWN` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    export_session: {
        parameters: {
            query?: {
                /** @description `json` can be imported. `markdown` is for reading. */
                format?: "json" | "markdown";
                /** @description Whether to include the versions of messages. */
                versions?: boolean;
            };
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionFile"];
                    "text/markdown": string;
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_messages: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MessageList"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_blob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
                sha256: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The image as it was sent. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "image/png": string;
                    "image/jpeg": string;
                    "image/webp": string;
                    "image/gif": string;
                    "image/bmp": string;
                };
            };
            /** @description `SESSION_NOT_FOUND`, `BLOB_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_file: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
                sha256: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file as it was sent. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "*/*": string;
                };
            };
            /** @description `SESSION_NOT_FOUND`, `BLOB_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    edit_message: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
                message_index: number;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["MessageEdit"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HistoryChanged"];
                };
            };
            /** @description `INVALID_MESSAGE_INDEX` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INVALID_MESSAGE_INDEX",
                     *         "message": "Message 3 cannot be used: <reason>.",
                     *         "details": {
                     *           "index": 3
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW`, `SESSION_BUSY` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    set_system_prompt: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SystemPromptUpdate"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionDetail"];
                };
            };
            /** @description `SESSION_NOT_FOUND`, `PROMPT_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW`, `SESSION_BUSY` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    remove_system_prompt: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `SESSION_NOT_FOUND`, `PROMPT_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW`, `SESSION_BUSY` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    summarize_session: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["SummarizeRequest"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SummaryOut"];
                };
            };
            /** @description `EMPTY_HISTORY` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "EMPTY_HISTORY",
                     *         "message": "Session '<session_id>' has no messages to summarize.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_NOT_FOUND`, `MODEL_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `RATE_LIMITED` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "RATE_LIMITED",
                     *         "message": "The limit of this API key is 1000. Send the request again in <retry_after> s.",
                     *         "details": {
                     *           "limit": 1000,
                     *           "retry_after": "<retry_after>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "OLLAMA_UNREACHABLE",
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "details": {
                     *           "ollama_host": "<host>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY`, `OLLAMA_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_summary: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SummaryOut"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_status: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionStatus"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_versions: {
        parameters: {
            query: {
                /** @description ID of a message of the history. */
                message_id: string;
            };
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VersionList"];
                };
            };
            /** @description `INVALID_MESSAGE_INDEX` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INVALID_MESSAGE_INDEX",
                     *         "message": "Message 3 cannot be used: <reason>.",
                     *         "details": {
                     *           "index": 3
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_TOO_NEW",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "version": "<version>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    delete_versions: {
        parameters: {
            query: {
                /** @description ID of a message of the history. */
                message_id: string;
            };
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `INVALID_MESSAGE_INDEX` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INVALID_MESSAGE_INDEX",
                     *         "message": "Message 3 cannot be used: <reason>.",
                     *         "details": {
                     *           "index": 3
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_BUSY`, `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_BUSY",
                     *         "message": "Session '<session_id>' is busy: a turn is running. Wait, or use POST /api/v1/chat/<session_id>/stop.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "run_id": "<run_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    select_version: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
                version_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HistoryChanged"];
                };
            };
            /** @description `SESSION_NOT_FOUND`, `VERSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_BUSY`, `SESSION_TOO_NEW`, `SESSION_CONFLICT` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_BUSY",
                     *         "message": "Session '<session_id>' is busy: a turn is running. Wait, or use POST /api/v1/chat/<session_id>/stop.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "run_id": "<run_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    compare_models: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CompareRequest"];
            };
        };
        responses: {
            /** @description A stream of server-sent events. Each event is a `CompareStreamEvent`, and the last event is `complete`. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example event: chunk
                     *     data: {"modelId":"qwen3:14b","delta":"Paris"}
                     *
                     *     event: complete
                     *     data: {"message":"All models completed"}
                     */
                    "text/event-stream": string;
                };
            };
            /** @description `VALIDATION_ERROR` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `RATE_LIMITED` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "RATE_LIMITED",
                     *         "message": "The limit of this API key is 1000. Send the request again in <retry_after> s.",
                     *         "details": {
                     *           "limit": 1000,
                     *           "retry_after": "<retry_after>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "OLLAMA_UNREACHABLE",
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "details": {
                     *           "ollama_host": "<host>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_BUSY`, `SHUTTING_DOWN` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "OLLAMA_BUSY",
                     *         "message": "Ollama is busy: <reason>. Try again in 2 seconds.",
                     *         "details": {
                     *           "upstream_status": 503,
                     *           "retry_after": 2
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_models: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModelList"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "OLLAMA_UNREACHABLE",
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "details": {
                     *           "ollama_host": "<host>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "OLLAMA_BUSY",
                     *         "message": "Ollama is busy: <reason>. Try again in 2 seconds.",
                     *         "details": {
                     *           "upstream_status": 503,
                     *           "retry_after": 2
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_model: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                model_name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Model"];
                };
            };
            /** @description `MODEL_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "MODEL_NOT_FOUND",
                     *         "message": "There is no chat model '<model>'. To install '<model>', run `ollama pull <model>`.",
                     *         "details": {
                     *           "model": "<model>",
                     *           "chat_models": []
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "OLLAMA_UNREACHABLE",
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "details": {
                     *           "ollama_host": "<host>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "OLLAMA_BUSY",
                     *         "message": "Ollama is busy: <reason>. Try again in 2 seconds.",
                     *         "details": {
                     *           "upstream_status": 503,
                     *           "retry_after": 2
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_tools: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ToolList"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_executions: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ExecutionList"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    reload_tools: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ToolList"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_tool: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tool_name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ToolDetails"];
                };
            };
            /** @description `TOOL_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "TOOL_NOT_FOUND",
                     *         "message": "There is no tool named '<tool_name>'. GET /api/v1/tools lists the tools.",
                     *         "details": {
                     *           "tool_name": "<tool_name>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_mcp_servers: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["McpServerList"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    authorize_mcp_server: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["McpAuthorizationRequest"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["McpAuthorization"];
                };
            };
            /** @description `MCP_SERVER_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "MCP_SERVER_NOT_FOUND",
                     *         "message": "There is no MCP server named '<name>' in mcp.json. GET /api/v1/mcp/servers lists the MCP servers.",
                     *         "details": {
                     *           "name": "<name>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `MCP_AUTHORIZATION_UNAVAILABLE` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "MCP_AUTHORIZATION_UNAVAILABLE",
                     *         "message": "No user can authorize the MCP server '<name>': <reason>.",
                     *         "details": {
                     *           "name": "<name>",
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `MCP_AUTHORIZATION_FAILED` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "MCP_AUTHORIZATION_FAILED",
                     *         "message": "The authorization at the MCP server '<name>' failed: <reason>.",
                     *         "details": {
                     *           "name": "<name>",
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    forget_mcp_authorization: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `MCP_SERVER_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "MCP_SERVER_NOT_FOUND",
                     *         "message": "There is no MCP server named '<name>' in mcp.json. GET /api/v1/mcp/servers lists the MCP servers.",
                     *         "details": {
                     *           "name": "<name>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    finish_mcp_authorization: {
        parameters: {
            query?: {
                state?: string;
                code?: string;
                iss?: string | null;
                error?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Page for the user. If the authorization failed, the status is 400. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/html": string;
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_agents: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentList"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    reload_agents: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentList"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_agent_chats: {
        parameters: {
            query?: {
                /** @description Owner of the sessions: the ID of an API key, or `<key ID>/<user ID>`. */
                owner?: string | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentChatList"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_agent_chat: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentChatDetail"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/agents/chats lists the sessions of agents.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_agent: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                agent_name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentDetails"];
                };
            };
            /** @description `AGENT_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "AGENT_NOT_FOUND",
                     *         "message": "There is no agent named '<agent_name>'. GET /api/v1/agents lists the agents.",
                     *         "details": {
                     *           "agent_name": "<agent_name>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `AGENT_INVALID` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "AGENT_INVALID",
                     *         "message": "Agent '<agent_name>' cannot be used: <reason>",
                     *         "details": {
                     *           "agent_name": "<agent_name>",
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_prompts: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PromptList"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    create_prompt: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PromptFile"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PromptFile"];
                };
            };
            /** @description `PROMPT_EXISTS` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "PROMPT_EXISTS",
                     *         "message": "System prompt '<filename>' already exists. Replace it with PUT, or choose another name.",
                     *         "details": {
                     *           "filename": "<filename>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_prompt: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                filename: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PromptFile"];
                };
            };
            /** @description `PROMPT_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "PROMPT_NOT_FOUND",
                     *         "message": "System prompt '<filename>' not found. GET /api/v1/system-prompts lists the prompt files.",
                     *         "details": {
                     *           "filename": "<filename>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    update_prompt: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                filename: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PromptContent"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PromptFile"];
                };
            };
            /** @description `PROMPT_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "PROMPT_NOT_FOUND",
                     *         "message": "System prompt '<filename>' not found. GET /api/v1/system-prompts lists the prompt files.",
                     *         "details": {
                     *           "filename": "<filename>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    delete_prompt: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                filename: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `PROMPT_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "PROMPT_NOT_FOUND",
                     *         "message": "System prompt '<filename>' not found. GET /api/v1/system-prompts lists the prompt files.",
                     *         "details": {
                     *           "filename": "<filename>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_hosts: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HostList"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_usage: {
        parameters: {
            query?: {
                /** @description Number of days in UTC, of which today is the last. */
                days?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UsageReport"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_BUSY",
                     *         "message": "<reason>",
                     *         "details": {
                     *           "reason": "<reason>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_health: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_live: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Alive"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_ready: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Ready"];
                };
            };
            /** @description `SHUTTING_DOWN`, `NOT_READY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SHUTTING_DOWN",
                     *         "message": "The server is shutting down and accepts no new sessions or turns. Try again later.",
                     *         "details": {
                     *           "retry_after": 5
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    get_metrics: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Metrics. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    chat_with_ai_sdk: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AiSdkRequest"];
            };
        };
        responses: {
            /** @description The UI message stream of the AI SDK. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description `SESSION_NOT_FOUND`, `CONFIRMATION_NOT_FOUND`, `MODEL_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `TOOL_CONFIRMATION_TIMEOUT` */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "TOOL_CONFIRMATION_TIMEOUT",
                     *         "message": "The tool call was denied: no decision arrived within MOCHI_TOOL_CONFIRMATION_TIMEOUT_SECONDS.",
                     *         "details": {
                     *           "confirmation_id": "<confirmation_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_BUSY`, `CONFIRMATION_STALE`, `CONFIRMATION_RESOLVED`, `SESSION_CONFLICT`, `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_BUSY",
                     *         "message": "Session '<session_id>' is busy: a turn is running. Wait, or use POST /api/v1/chat/<session_id>/stop.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "run_id": "<run_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `RATE_LIMITED` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "RATE_LIMITED",
                     *         "message": "The limit of this API key is 1000. Send the request again in <retry_after> s.",
                     *         "details": {
                     *           "limit": 1000,
                     *           "retry_after": "<retry_after>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SHUTTING_DOWN`, `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SHUTTING_DOWN",
                     *         "message": "The server is shutting down and accepts no new sessions or turns. Try again later.",
                     *         "details": {
                     *           "retry_after": 5
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SERVER_LOST",
                     *         "message": "The server that runs the turn of session '<session_id>' does not respond. Load the session to see the stored messages. Send the request again later.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    resume_ai_sdk: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
                chat_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The UI message stream of the AI SDK. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description No turn is running. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SERVER_LOST",
                     *         "message": "The server that runs the turn of session '<session_id>' does not respond. Load the session to see the stored messages. Send the request again later.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    chat_with_ag_ui: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AgUiRequest"];
            };
        };
        responses: {
            /** @description Events of AG-UI. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description `SESSION_NOT_FOUND`, `CONFIRMATION_NOT_FOUND`, `MODEL_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_NOT_FOUND",
                     *         "message": "Session with ID '<session_id>' not found. GET /api/v1/sessions lists the sessions.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `TOOL_CONFIRMATION_TIMEOUT` */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "TOOL_CONFIRMATION_TIMEOUT",
                     *         "message": "The tool call was denied: no decision arrived within MOCHI_TOOL_CONFIRMATION_TIMEOUT_SECONDS.",
                     *         "details": {
                     *           "confirmation_id": "<confirmation_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_BUSY`, `CONFIRMATION_STALE`, `CONFIRMATION_RESOLVED`, `SESSION_CONFLICT`, `SESSION_TOO_NEW` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SESSION_BUSY",
                     *         "message": "Session '<session_id>' is busy: a turn is running. Wait, or use POST /api/v1/chat/<session_id>/stop.",
                     *         "details": {
                     *           "session_id": "<session_id>",
                     *           "run_id": "<run_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `RATE_LIMITED` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "RATE_LIMITED",
                     *         "message": "The limit of this API key is 1000. Send the request again in <retry_after> s.",
                     *         "details": {
                     *           "limit": 1000,
                     *           "retry_after": "<retry_after>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "STORAGE_FAILED",
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "details": {
                     *           "errno": 28
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SHUTTING_DOWN`, `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SHUTTING_DOWN",
                     *         "message": "The server is shutting down and accepts no new sessions or turns. Try again later.",
                     *         "details": {
                     *           "retry_after": 5
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "SERVER_LOST",
                     *         "message": "The server that runs the turn of session '<session_id>' does not respond. Load the session to see the stored messages. Send the request again later.",
                     *         "details": {
                     *           "session_id": "<session_id>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_openai_models: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenAIModelList"];
                };
            };
            /** @description `ollama_unreachable`, `ollama_error` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "type": "server_error",
                     *         "code": "ollama_unreachable"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_busy` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Ollama is busy: <reason>. Try again in 2 seconds.",
                     *         "type": "server_error",
                     *         "code": "ollama_busy"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "type": "server_error",
                     *         "code": "internal_error"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
        };
    };
    get_openai_model: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                model_name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenAIModel"];
                };
            };
            /** @description `agent_invalid` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Agent '<agent_name>' cannot be used: <reason>",
                     *         "type": "invalid_request_error",
                     *         "code": "agent_invalid"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `model_not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "There is no chat model '<model>'. To install '<model>', run `ollama pull <model>`.",
                     *         "type": "invalid_request_error",
                     *         "param": "model",
                     *         "code": "model_not_found"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_unreachable`, `ollama_error` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "type": "server_error",
                     *         "code": "ollama_unreachable"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_busy` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Ollama is busy: <reason>. Try again in 2 seconds.",
                     *         "type": "server_error",
                     *         "code": "ollama_busy"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "type": "server_error",
                     *         "code": "internal_error"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
        };
    };
    create_chat_completion: {
        parameters: {
            query?: never;
            header?: {
                /** @description Overrides `metadata.session_id`. */
                "X-Mochi-Session"?: string | null;
                /** @description Tools of this server, separated by commas. */
                "X-Mochi-Tools"?: string | null;
                /** @description Without a session: calls that need approval are denied. */
                "X-Mochi-Tool-Policy"?: components["schemas"]["ToolExecutionPolicy"] | null;
                /** @description In a session: the same key returns the existing answer. */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CompletionRequest"];
            };
        };
        responses: {
            /** @description The completion, as JSON or in chunks. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Completion"];
                    "text/event-stream": string;
                };
            };
            /** @description `invalid_request`, `context_length_exceeded`, `agent_invalid`, `idempotency_key_reused` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "<message>",
                     *         "type": "invalid_request_error",
                     *         "code": "invalid_request"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `model_not_found`, `session_not_found`, `tool_not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "There is no chat model '<model>'. To install '<model>', run `ollama pull <model>`.",
                     *         "type": "invalid_request_error",
                     *         "param": "model",
                     *         "code": "model_not_found"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `session_busy`, `session_conflict`, `session_too_new` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Session '<session_id>' is busy: a turn is running. Wait, or use POST /api/v1/chat/<session_id>/stop.",
                     *         "type": "invalid_request_error",
                     *         "code": "session_busy"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `rate_limited` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "The limit of this API key is 1000. Send the request again in <retry_after> s.",
                     *         "type": "rate_limit_error",
                     *         "code": "rate_limited"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `storage_failed` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "type": "server_error",
                     *         "code": "storage_failed"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_unreachable`, `ollama_error`, `tool_not_called`, `format_not_met` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "type": "server_error",
                     *         "code": "ollama_unreachable"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_busy`, `storage_busy`, `shutting_down` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Ollama is busy: <reason>. Try again in 2 seconds.",
                     *         "type": "server_error",
                     *         "code": "ollama_busy"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "type": "server_error",
                     *         "code": "internal_error"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
        };
    };
    create_completion: {
        parameters: {
            query?: never;
            header?: {
                /** @description Overrides `metadata.session_id`. */
                "X-Mochi-Session"?: string | null;
                /** @description Tools of this server, separated by commas. */
                "X-Mochi-Tools"?: string | null;
                /** @description Without a session: calls that need approval are denied. */
                "X-Mochi-Tool-Policy"?: components["schemas"]["ToolExecutionPolicy"] | null;
                /** @description In a session: the same key returns the existing answer. */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TextCompletionRequest"];
            };
        };
        responses: {
            /** @description The completion, as JSON or in chunks. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TextCompletion"];
                    "text/event-stream": string;
                };
            };
            /** @description `invalid_request`, `context_length_exceeded`, `agent_invalid`, `idempotency_key_reused` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "<message>",
                     *         "type": "invalid_request_error",
                     *         "code": "invalid_request"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `model_not_found`, `session_not_found`, `tool_not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "There is no chat model '<model>'. To install '<model>', run `ollama pull <model>`.",
                     *         "type": "invalid_request_error",
                     *         "param": "model",
                     *         "code": "model_not_found"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `session_busy`, `session_conflict`, `session_too_new` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Session '<session_id>' is busy: a turn is running. Wait, or use POST /api/v1/chat/<session_id>/stop.",
                     *         "type": "invalid_request_error",
                     *         "code": "session_busy"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `rate_limited` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "The limit of this API key is 1000. Send the request again in <retry_after> s.",
                     *         "type": "rate_limit_error",
                     *         "code": "rate_limited"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `storage_failed` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "type": "server_error",
                     *         "code": "storage_failed"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_unreachable`, `ollama_error`, `tool_not_called`, `format_not_met` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "type": "server_error",
                     *         "code": "ollama_unreachable"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_busy`, `storage_busy`, `shutting_down` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Ollama is busy: <reason>. Try again in 2 seconds.",
                     *         "type": "server_error",
                     *         "code": "ollama_busy"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "type": "server_error",
                     *         "code": "internal_error"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
        };
    };
    create_embeddings: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["EmbeddingRequest"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EmbeddingList"];
                };
            };
            /** @description `invalid_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "<message>",
                     *         "type": "invalid_request_error",
                     *         "code": "invalid_request"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `model_not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "There is no chat model '<model>'. To install '<model>', run `ollama pull <model>`.",
                     *         "type": "invalid_request_error",
                     *         "param": "model",
                     *         "code": "model_not_found"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `rate_limited` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "The limit of this API key is 1000. Send the request again in <retry_after> s.",
                     *         "type": "rate_limit_error",
                     *         "code": "rate_limited"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_unreachable`, `ollama_error` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "type": "server_error",
                     *         "code": "ollama_unreachable"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_busy` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Ollama is busy: <reason>. Try again in 2 seconds.",
                     *         "type": "server_error",
                     *         "code": "ollama_busy"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "type": "server_error",
                     *         "code": "internal_error"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
        };
    };
    create_response: {
        parameters: {
            query?: never;
            header?: {
                /** @description Overrides `metadata.session_id`. */
                "X-Mochi-Session"?: string | null;
                /** @description Tools of this server, separated by commas. */
                "X-Mochi-Tools"?: string | null;
                /** @description Without a session: calls that need approval are denied. */
                "X-Mochi-Tool-Policy"?: components["schemas"]["ToolExecutionPolicy"] | null;
                /** @description In a session: the same key returns the existing answer. */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ResponseRequest"];
            };
        };
        responses: {
            /** @description The response, as JSON or as events. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModelResponse"];
                    "text/event-stream": string;
                };
            };
            /** @description `invalid_request`, `context_length_exceeded`, `agent_invalid`, `idempotency_key_reused` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "<message>",
                     *         "type": "invalid_request_error",
                     *         "code": "invalid_request"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `model_not_found`, `session_not_found`, `tool_not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "There is no chat model '<model>'. To install '<model>', run `ollama pull <model>`.",
                     *         "type": "invalid_request_error",
                     *         "param": "model",
                     *         "code": "model_not_found"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `session_busy`, `session_conflict`, `session_too_new` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Session '<session_id>' is busy: a turn is running. Wait, or use POST /api/v1/chat/<session_id>/stop.",
                     *         "type": "invalid_request_error",
                     *         "code": "session_busy"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `rate_limited` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "The limit of this API key is 1000. Send the request again in <retry_after> s.",
                     *         "type": "rate_limit_error",
                     *         "code": "rate_limited"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `storage_failed` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "type": "server_error",
                     *         "code": "storage_failed"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_unreachable`, `ollama_error`, `tool_not_called`, `format_not_met` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "type": "server_error",
                     *         "code": "ollama_unreachable"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_busy`, `storage_busy`, `shutting_down` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Ollama is busy: <reason>. Try again in 2 seconds.",
                     *         "type": "server_error",
                     *         "code": "ollama_busy"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "type": "server_error",
                     *         "code": "internal_error"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
        };
    };
    count_input_tokens: {
        parameters: {
            query?: never;
            header?: {
                /** @description Overrides `metadata.session_id`. */
                "X-Mochi-Session"?: string | null;
                /** @description Tools of this server, separated by commas. */
                "X-Mochi-Tools"?: string | null;
                /** @description Without a session: calls that need approval are denied. */
                "X-Mochi-Tool-Policy"?: components["schemas"]["ToolExecutionPolicy"] | null;
                /** @description In a session: the same key returns the existing answer. */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ResponseRequest"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["InputTokens"];
                };
            };
            /** @description `invalid_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "<message>",
                     *         "type": "invalid_request_error",
                     *         "code": "invalid_request"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `model_not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "There is no chat model '<model>'. To install '<model>', run `ollama pull <model>`.",
                     *         "type": "invalid_request_error",
                     *         "param": "model",
                     *         "code": "model_not_found"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_unreachable`, `ollama_error` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "type": "server_error",
                     *         "code": "ollama_unreachable"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_busy` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Ollama is busy: <reason>. Try again in 2 seconds.",
                     *         "type": "server_error",
                     *         "code": "ollama_busy"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "type": "server_error",
                     *         "code": "internal_error"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
        };
    };
    get_response: {
        parameters: {
            query?: {
                /** @description Only `false` is supported. */
                stream?: boolean | null;
            };
            header?: never;
            path: {
                response_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModelResponse"];
                };
            };
            /** @description `invalid_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "<message>",
                     *         "type": "invalid_request_error",
                     *         "code": "invalid_request"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `response_not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Response '<response_id>' not found. Without a session, the server keeps responses for an hour.",
                     *         "type": "invalid_request_error",
                     *         "code": "response_not_found"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `session_too_new` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "type": "invalid_request_error",
                     *         "code": "session_too_new"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `storage_failed` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "type": "server_error",
                     *         "code": "storage_failed"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `storage_busy` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "<reason>",
                     *         "type": "server_error",
                     *         "code": "storage_busy"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "type": "server_error",
                     *         "code": "internal_error"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
        };
    };
    list_input_items: {
        parameters: {
            query?: {
                /** @description Maximum number of items. */
                limit?: number;
                /** @description `desc` lists new items first. */
                order?: "asc" | "desc";
                /** @description ID of the last item of the page before. */
                after?: string | null;
            };
            header?: never;
            path: {
                response_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["InputItemList"];
                };
            };
            /** @description `invalid_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "<message>",
                     *         "type": "invalid_request_error",
                     *         "code": "invalid_request"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `response_not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Response '<response_id>' not found. Without a session, the server keeps responses for an hour.",
                     *         "type": "invalid_request_error",
                     *         "code": "response_not_found"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `session_too_new` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "type": "invalid_request_error",
                     *         "code": "session_too_new"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `storage_failed` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "type": "server_error",
                     *         "code": "storage_failed"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `storage_busy` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "<reason>",
                     *         "type": "server_error",
                     *         "code": "storage_busy"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "type": "server_error",
                     *         "code": "internal_error"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
        };
    };
    cancel_response: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                response_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModelResponse"];
                };
            };
            /** @description `invalid_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "<message>",
                     *         "type": "invalid_request_error",
                     *         "code": "invalid_request"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `response_not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Response '<response_id>' not found. Without a session, the server keeps responses for an hour.",
                     *         "type": "invalid_request_error",
                     *         "code": "response_not_found"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `session_too_new` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server.",
                     *         "type": "invalid_request_error",
                     *         "code": "session_too_new"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `storage_failed` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "Cannot <operation>: Disk full.",
                     *         "type": "server_error",
                     *         "code": "storage_failed"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `storage_busy` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "<reason>",
                     *         "type": "server_error",
                     *         "code": "storage_busy"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "type": "server_error",
                     *         "code": "internal_error"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
        };
    };
    create_message: {
        parameters: {
            query?: never;
            header?: {
                /** @description Overrides `metadata.session_id`. */
                "X-Mochi-Session"?: string | null;
                /** @description Tools of this server, separated by commas. */
                "X-Mochi-Tools"?: string | null;
                /** @description Without a session: calls that need approval are denied. */
                "X-Mochi-Tool-Policy"?: components["schemas"]["ToolExecutionPolicy"] | null;
                /** @description In a session: the same key returns the existing answer. */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["MessageRequest"];
            };
        };
        responses: {
            /** @description The message, as JSON or as events. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MessageResponse"];
                    "text/event-stream": string;
                };
            };
            /** @description `invalid_request_error` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "invalid_request_error",
                     *         "message": "The idempotency key '<idempotency_key>' was used for another message of this session. Use a new key."
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
            /** @description `not_found_error` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "not_found_error",
                     *         "message": "There is no tool named '<tool_name>'. GET /api/v1/tools lists the tools."
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
            /** @description `invalid_request_error` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "invalid_request_error",
                     *         "message": "The file of session '<session_id>' has format version <version>, and this server reads versions up to 1.4. Update mochi-server."
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
            /** @description `rate_limit_error` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "rate_limit_error",
                     *         "message": "The limit of this API key is 1000. Send the request again in <retry_after> s."
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
            /** @description `api_error` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "api_error",
                     *         "message": "Cannot <operation>: Disk full."
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
            /** @description `api_error` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "api_error",
                     *         "message": "Model '<model>' returned no JSON that fits the schema, also after a repair request: <problem>. Use another model, or a simpler schema. Its last answer: <text>"
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
            /** @description `overloaded_error` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "overloaded_error",
                     *         "message": "The server is shutting down and accepts no new sessions or turns. Try again later."
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
            /** @description `overloaded_error` */
            529: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "overloaded_error",
                     *         "message": "<reason>"
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "api_error",
                     *         "message": "An unexpected error occurred in the server. See its log."
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
        };
    };
    count_message_tokens: {
        parameters: {
            query?: never;
            header?: {
                /** @description Overrides `metadata.session_id`. */
                "X-Mochi-Session"?: string | null;
                /** @description Tools of this server, separated by commas. */
                "X-Mochi-Tools"?: string | null;
                /** @description Without a session: calls that need approval are denied. */
                "X-Mochi-Tool-Policy"?: components["schemas"]["ToolExecutionPolicy"] | null;
                /** @description In a session: the same key returns the existing answer. */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CountRequest"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: number;
                    };
                };
            };
            /** @description `invalid_request_error` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "invalid_request_error",
                     *         "message": "<message>"
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
            /** @description `not_found_error` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "not_found_error",
                     *         "message": "There is no chat model '<model>'. To install '<model>', run `ollama pull <model>`."
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
            /** @description `api_error` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "api_error",
                     *         "message": "<message>"
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
            /** @description `overloaded_error` */
            529: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "overloaded_error",
                     *         "message": "Ollama is busy: <reason>. Try again in 2 seconds."
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "error",
                     *       "error": {
                     *         "type": "api_error",
                     *         "message": "An unexpected error occurred in the server. See its log."
                     *       },
                     *       "request_id": ""
                     *     }
                     */
                    "application/json": components["schemas"]["AnthropicErrorEnvelope"];
                };
            };
        };
    };
    compare_models_without_prefix: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CompareRequest"];
            };
        };
        responses: {
            /** @description A stream of server-sent events. Each event is a `CompareStreamEvent`, and the last event is `complete`. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example event: chunk
                     *     data: {"modelId":"qwen3:14b","delta":"Paris"}
                     *
                     *     event: complete
                     *     data: {"message":"All models completed"}
                     */
                    "text/event-stream": string;
                };
            };
            /** @description `VALIDATION_ERROR` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "VALIDATION_ERROR",
                     *         "message": "<message>",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `RATE_LIMITED` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "RATE_LIMITED",
                     *         "message": "The limit of this API key is 1000. Send the request again in <retry_after> s.",
                     *         "details": {
                     *           "limit": 1000,
                     *           "retry_after": "<retry_after>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "OLLAMA_UNREACHABLE",
                     *         "message": "Cannot reach Ollama at <host>: <reason>. Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
                     *         "details": {
                     *           "ollama_host": "<host>"
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_BUSY`, `SHUTTING_DOWN` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "OLLAMA_BUSY",
                     *         "message": "Ollama is busy: <reason>. Try again in 2 seconds.",
                     *         "details": {
                     *           "upstream_status": 503,
                     *           "retry_after": 2
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "error": {
                     *         "code": "INTERNAL_ERROR",
                     *         "message": "An unexpected error occurred in the server. See its log.",
                     *         "details": {}
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
}
