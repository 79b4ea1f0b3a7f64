// The types of mochi-server's API, made of its OpenAPI document. `data` of events is typed as what its JSON holds.

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
         * @description Send a message and get the whole answer.
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
         * Attach
         * @description Listen to the running turn, or to one that ended lately, from the beginning or from an event on.
         */
        get: operations["attach"];
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
         * @description Stop the running turn and keep what was said; nothing happens when none is running.
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
         * @description Get the running or latest turn.
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
         * @description List sessions, the last changed first: all, or those whose title and messages hold every word of `q`.
         */
        get: operations["list_sessions"];
        put?: never;
        /**
         * Create session
         * @description Create a session.
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
         * @description Store the sessions of an exported file, of this server or of Open WebUI, under new ids: all of them or none.
         */
        post: operations["import_sessions"];
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
         * @description Delete a session; a running turn is stopped first.
         */
        delete: operations["delete_session"];
        options?: never;
        head?: never;
        /**
         * Patch session
         * @description Change a session's settings; also while it is answering.
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
         * @description Begin a new session with the messages up to one of this session, which stays as it is.
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
         * @description Get a session as a file: JSON, which can be imported, its images with it, or Markdown, to be read.
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
         * @description Get an image that a message of the session names.
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
         * @description Edit a user message; the messages after it are removed.
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
         * @description Remove the system prompt.
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
         * @description Summarize a session now.
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
         * @description Get the summary of a session; nulls while there is none.
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
         * @description Get where a session stands, its context window included.
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
         * @description Put one prompt to up to three models, one after the other; nothing is stored.
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
         * @description List the models that can chat.
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
         * @description Get one model; names may hold slashes and colons, the tag is optional.
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
         * @description List the tools, their groups, and what in the directory cannot be used.
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
         * @description List the last hundred runs of tools, with statistics.
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
         * @description Read the tools directory again, and connect to its MCP servers anew.
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
         * @description Get one tool with its JSON schema.
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
    "/api/v1/agents": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List agents
         * @description List the agents, and what is wrong with those that cannot be used.
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
         * @description List the sessions of agents, the last changed first.
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
         * @description Get one agent with its prompt and its tools.
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
    "/api/v1/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get health
         * @description Whether the server serves, and whether Ollama answers it.
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
         * @description Whether the process serves; who gets no answer may start it anew. Needs no key.
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
         * @description Whether new turns are taken and can be stored; 503 says why they are not. Needs no key, and no Ollama.
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
         * @description What the server counts of itself, in Prometheus' text format; also at `/metrics` alone.
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
    "/v1/models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List OpenAI models
         * @description List what can be asked for: models that can chat, and agents as `agent:NAME`.
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
         * @description Whether a model or an agent can be asked for.
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
         * @description Answer a conversation, whole or streamed: without a session nothing is stored.
         */
        post: operations["create_chat_completion"];
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
         * AgentChat
         * @description A conversation with an agent, without its messages.
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
                [key: string]: unknown;
            } | null;
            /** Summary Model */
            summary_model: string | null;
            /** Format Version */
            format_version: string;
            tool_settings: components["schemas"]["ToolSettings"];
            agent_settings: components["schemas"]["AgentSettings"];
            /** Context Window Config */
            context_window_config: {
                [key: string]: unknown;
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
            /** Agent Name */
            agent_name?: string | null;
        };
        /**
         * AgentChatDetail
         * @description A conversation with an agent.
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
                [key: string]: unknown;
            } | null;
            /** Summary Model */
            summary_model: string | null;
            /** Format Version */
            format_version: string;
            tool_settings: components["schemas"]["ToolSettings"];
            agent_settings: components["schemas"]["AgentSettings"];
            /** Context Window Config */
            context_window_config: {
                [key: string]: unknown;
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
            /** Messages */
            messages: components["schemas"]["StoredMessage"][];
            /** Agent Name */
            agent_name?: string | null;
        };
        /**
         * AgentChatList
         * @description Conversations with agents, the last changed first.
         */
        AgentChatList: {
            /** Sessions */
            sessions: components["schemas"]["AgentChat"][];
        };
        /** @description The agent has ended. `output` is whole here; the model that called gets it cut to the limit of tools. */
        AgentComplete: {
            agent_name: string;
            session_id: string | null;
            output: string;
            success: boolean;
            error_code: string | null;
            agent_session_id: string | null;
            parent_call_id: string;
        };
        /** @description `agent_complete`: The agent has ended. `output` is whole here; the model that called gets it cut to the limit of tools. */
        AgentCompleteEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * @description An agent with its prompt, its tools, and which of its tools cannot be used.
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
         * @description A piece of what the agent says while it carries out its plan.
         *
         *     An empty one ends what it says before it acts: another answer follows.
         */
        AgentExecution: {
            content: string;
            agent_name: string;
            agent_session_id: string;
            parent_call_id: string;
        };
        /**
         * @description `agent_execution`: A piece of what the agent says while it carries out its plan.
         *
         *     An empty one ends what it says before it acts: another answer follows.
         */
        AgentExecutionEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * @description All agents by name, invalid ones among them.
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
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * @description Which agents a session may call.
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
         * @description Which agents the model may call.
         */
        AgentSettingsRequest: {
            /** Enabled Agents */
            enabled_agents?: string[];
            /** Selection Metadata */
            selection_metadata?: {
                [key: string]: unknown;
            } | null;
        };
        /** @description The model has called an agent. `agent_session_id` is null where the call names no session it may have. */
        AgentStart: {
            agent_name: string;
            instruction: string;
            agent_session_id: string | null;
            parent_call_id: string;
        };
        /** @description `agent_start`: The model has called an agent. `agent_session_id` is null where the call names no session it may have. */
        AgentStartEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * @description An agent. An invalid one has an ``error_message`` that names the file and what is wrong with it.
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
        /** @description The agent runs one of its tools now; `call_index` counts the calls of this run of the agent. */
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
        /** @description `agent_tool_call`: The agent runs one of its tools now; `call_index` counts the calls of this run of the agent. */
        AgentToolCalledEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
        /** @description How a call of one of the agent's tools ended. */
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
        /** @description `agent_tool_result`: How a call of one of the agent's tools ended. */
        AgentToolResultEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * Alive
         * @description The process serves.
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
         * @description Over all remembered runs, and by tool.
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
         * AssistantMessage
         * @description What the model said.
         */
        AssistantMessage: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            role: "assistant";
            /** Content */
            content?: (string | components["schemas"]["TextPart"][]) | null;
            /** Reasoning Content */
            reasoning_content?: string | null;
            /** Reasoning */
            reasoning?: string | null;
            /** Tool Calls */
            tool_calls?: components["schemas"]["Call"][] | null;
        };
        /**
         * Besides
         * @description What OpenAI's API has no place for: the window, what tools of this server did, and what the user should know.
         */
        Besides: {
            /** Context Window */
            context_window: {
                [key: string]: unknown;
            };
            /** Tool Calls Executed */
            tool_calls_executed: components["schemas"]["ToolCallExecuted"][];
            /** Notices */
            notices: {
                [key: string]: unknown;
            }[];
        };
        /**
         * Call
         * @description A call that the model made.
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
         * @description The function of a call; ``arguments`` are JSON.
         */
        CalledFunction: {
            /** Name */
            name: string;
            /** Arguments */
            arguments: string;
        };
        /**
         * CalledTool
         * @description A call that the client carries out.
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
        /**
         * ChatRequest
         * @description What to say, and how to answer. Without a message the last user message is answered again.
         * @example {
         *       "message": "What is the capital of France?"
         *     }
         */
        ChatRequest: {
            /**
             * Message
             * @description What the user says. Without it, the last user message is answered again.
             */
            message?: string | null;
            /**
             * Think
             * @description Whether, or how much, a model that can think does so.
             */
            think?: boolean | ("low" | "medium" | "high" | "max") | null;
            /**
             * Options
             * @description Ollama's options, such as `temperature`, `seed` or `num_predict`; they go before the session's.
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
             * @description The form of the answer: `json`, or a JSON schema.
             */
            format?: "json" | {
                [key: string]: unknown;
            } | null;
            /**
             * Keep Alive
             * @description How long Ollama keeps the model in memory: seconds, or a duration such as `5m`.
             */
            keep_alive?: string | number | null;
            /**
             * Images
             * @description For models with `vision`: PNG, JPEG, WebP, GIF or BMP, as base64, which may be a data URL. They belong to the message.
             */
            images?: string[] | null;
            /**
             * If Busy
             * @description When the session is answering: 409, or this turn comes after that.
             * @default reject
             * @enum {string}
             */
            if_busy?: "reject" | "wait";
            /**
             * On Disconnect
             * @description Whether the turn ends when nobody listens any more.
             * @default cancel
             * @enum {string}
             */
            on_disconnect?: "cancel" | "continue";
            /**
             * Wait For Confirmation
             * @description Without streaming: wait for approval of tool calls instead of denying them.
             * @default false
             */
            wait_for_confirmation?: boolean;
        };
        /**
         * ChatResponse
         * @description An answer as it is stored. ``message`` is null when the turn was stopped before the model spoke.
         */
        ChatResponse: {
            /** Session Id */
            session_id: string;
            /** Message */
            message: components["schemas"]["StoredMessage"] | null;
            /** Tool Calls Executed */
            tool_calls_executed: components["schemas"]["ToolCallExecuted"][];
            context_window: components["schemas"]["ContextWindow"];
        };
        /** @description An event of a turn. `data` is JSON; others may be added. */
        ChatStreamEvent: components["schemas"]["ContentDeltaEvent"] | components["schemas"]["ThinkingDeltaEvent"] | components["schemas"]["ToolCalledEvent"] | components["schemas"]["ToolConfirmationRequiredEvent"] | components["schemas"]["ToolResultEvent"] | components["schemas"]["ToolContinuationStartEvent"] | components["schemas"]["AgentStartEvent"] | components["schemas"]["AgentPlanningEvent"] | components["schemas"]["AgentExecutionEvent"] | components["schemas"]["AgentToolCalledEvent"] | components["schemas"]["AgentToolResultEvent"] | components["schemas"]["AgentCompleteEvent"] | components["schemas"]["MessageCompleteEvent"] | components["schemas"]["StatusEvent"] | components["schemas"]["SnapshotEvent"] | components["schemas"]["ContextCompactedEvent"] | components["schemas"]["TurnWarningEvent"] | components["schemas"]["TurnErrorEvent"] | components["schemas"]["DoneEvent"];
        /**
         * Choice
         * @description The only one.
         */
        Choice: {
            /** Index */
            index: number;
            message: components["schemas"]["CompletionMessage"];
            /** Logprobs */
            logprobs: null;
            /**
             * Finish Reason
             * @enum {string}
             */
            finish_reason: "stop" | "length" | "tool_calls";
        };
        /**
         * ClientTool
         * @description A tool that the client carries out.
         */
        ClientTool: {
            /**
             * Type
             * @constant
             */
            type: "function";
            function: components["schemas"]["FunctionTool"];
        };
        /** @description The whole response; times in milliseconds, tokens as Ollama counted them. */
        CompareAnswered: {
            modelId: string;
            response: string;
            inputTokens: number | null;
            outputTokens: number | null;
            firstTokenMs: number | null;
            totalMs: number;
            tokensPerSecond: number | null;
        };
        /** @description `done`: The whole response; times in milliseconds, tokens as Ollama counted them. */
        CompareAnsweredEvent: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "done";
            data: components["schemas"]["CompareAnswered"];
        };
        /** @description A piece of the answer, or of the thinking before it. */
        CompareChunk: {
            modelId: string;
            delta: string;
        };
        /** @description `chunk`: A piece of the answer, or of the thinking before it. */
        CompareChunkEvent: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "chunk";
            data: components["schemas"]["CompareThinkingChunk"] | components["schemas"]["CompareChunk"];
        };
        /** @description All models have had their turn. */
        CompareComplete: {
            message: string;
        };
        /** @description `complete`: All models have had their turn. */
        CompareCompleteEvent: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "complete";
            data: components["schemas"]["CompareComplete"];
        };
        /** @description The model has finished. */
        CompareEnd: {
            modelId: string;
        };
        /** @description `end`: The model has finished. */
        CompareEndEvent: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "end";
            data: components["schemas"]["CompareEnd"];
        };
        /** @description The model has failed; nothing more of it comes. */
        CompareFailed: {
            modelId: string;
            error: string;
        };
        /** @description `error`: The model has failed; nothing more of it comes. */
        CompareFailedEvent: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "error";
            data: components["schemas"]["CompareFailed"];
        };
        /** @description A model's turn begins. */
        CompareMetadata: {
            modelId: string;
            modelName: string;
            provider: string;
        };
        /** @description `metadata`: A model's turn begins. */
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
         * @description One prompt for one to three models, named, or numbered in the list of models from 1.
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
             * @description Names of models, or their numbers in the list of models, from 1.
             */
            modelIds: (string | number)[];
            /**
             * Message
             * @description What each of them is asked.
             */
            message: string;
            /**
             * Systemprompt
             * @description The system message.
             */
            systemPrompt?: string | null;
            /**
             * Chathistory
             * @description What was said before.
             */
            chatHistory?: components["schemas"]["HistoryMessage"][] | null;
            /**
             * Think
             * @description Whether, or how much, models that can think do so.
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
        /** @description The model is asked. */
        CompareStart: {
            modelId: string;
        };
        /** @description `start`: The model is asked. */
        CompareStartEvent: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            event: "start";
            data: components["schemas"]["CompareStart"];
        };
        /** @description An event of a comparison. `data` is JSON. */
        CompareStreamEvent: components["schemas"]["CompareMetadataEvent"] | components["schemas"]["CompareStartEvent"] | components["schemas"]["CompareChunkEvent"] | components["schemas"]["CompareEndEvent"] | components["schemas"]["CompareAnsweredEvent"] | components["schemas"]["CompareFailedEvent"] | components["schemas"]["CompareCompleteEvent"];
        /** @description A piece of thinking; it is no part of the response. */
        CompareThinkingChunk: {
            modelId: string;
            delta: string;
            kind: string;
        };
        /**
         * Completion
         * @description An answer, whole.
         */
        Completion: {
            /** Id */
            id: string;
            /**
             * Object
             * @constant
             */
            object: "chat.completion";
            /** Created */
            created: number;
            /** Model */
            model: string;
            /** Choices */
            choices: components["schemas"]["Choice"][];
            usage: components["schemas"]["Usage"];
            mochi: components["schemas"]["Besides"];
        };
        /**
         * CompletionMessage
         * @description The answer. ``reasoning_content`` and ``reasoning`` are the same, and there when the model has thought.
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
         * @description A conversation to be answered. Null is the same as leaving a field out; unknown fields are left alone.
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
             * @description A model of Ollama, or `agent:NAME`.
             */
            model: string;
            /**
             * Messages
             * @description The conversation; in a session, what is new of it.
             */
            messages: (components["schemas"]["SystemMessage"] | components["schemas"]["UserMessage"] | components["schemas"]["AssistantMessage"] | components["schemas"]["ToolMessage"])[];
            /**
             * Stream
             * @description Whether the answer comes in chunks.
             */
            stream?: boolean | null;
            /** @description With `include_usage`, a last chunk tells the tokens. */
            stream_options?: components["schemas"]["StreamOptions"] | null;
            /** @description `session_id` names the session whose turn this is. */
            metadata?: components["schemas"]["Metadata"] | null;
            /**
             * Tools
             * @description Tools that the client carries out.
             */
            tools?: components["schemas"]["ClientTool"][] | null;
            /**
             * Tool Choice
             * @description `required` cannot be enforced, and is as `auto`.
             */
            tool_choice?: ("none" | "auto" | "required") | components["schemas"]["NamedTool"] | null;
            /**
             * Response Format
             * @description Text, any JSON, or JSON by a schema.
             */
            response_format?: (components["schemas"]["PlainFormat"] | components["schemas"]["SchemaFormat"]) | null;
            /**
             * Reasoning Effort
             * @description Whether, or how much, a model that can think does so.
             */
            reasoning_effort?: ("none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max") | null;
            /**
             * Max Tokens
             * @description Of the answer, what the model thinks included.
             */
            max_tokens?: number | null;
            /**
             * Max Completion Tokens
             * @description Goes before `max_tokens`.
             */
            max_completion_tokens?: number | null;
            /**
             * Temperature
             * @description How far the model strays from the likeliest words.
             */
            temperature?: number | null;
            /**
             * Top P
             * @description Words are chosen from the likeliest that make up this share.
             */
            top_p?: number | null;
            /**
             * Frequency Penalty
             * @description Against words by how often they were said.
             */
            frequency_penalty?: number | null;
            /**
             * Presence Penalty
             * @description Against words that were said.
             */
            presence_penalty?: number | null;
            /**
             * Seed
             * @description The same seed and request give the same answer.
             */
            seed?: number | null;
            /**
             * Stop
             * @description Texts before which the answer ends.
             */
            stop?: string | string[] | null;
            /**
             * N
             * @description 1 alone: there is one answer to a request.
             */
            n?: number | null;
            /**
             * Logprobs
             * @description False alone.
             */
            logprobs?: boolean | null;
            /**
             * Top Logprobs
             * @description 0 alone.
             */
            top_logprobs?: number | null;
            /**
             * Logit Bias
             * @description Empty alone.
             */
            logit_bias?: {
                [key: string]: unknown;
            } | null;
            /**
             * Modalities
             * @description Text alone.
             */
            modalities?: string[] | null;
            /**
             * Audio
             * @description Not supported.
             */
            audio?: unknown;
            /**
             * Functions
             * @description Not supported; `tools` is its successor.
             */
            functions?: unknown;
            /**
             * Function Call
             * @description Not supported.
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
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
        /** @description The model is not sent the whole history: what is left out of it. What is stored stays whole. */
        ContextCompacted: {
            dropped_messages: number;
            trimmed_tool_results: number;
            summary_used: boolean;
        };
        /** @description `context_compacted`: The model is not sent the whole history: what is left out of it. What is stored stays whole. */
        ContextCompactedEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * @description The window the answer was given in, in tokens.
         */
        ContextWindow: {
            /** Current Window */
            current_window: number | null;
            /** Usage Tokens */
            usage_tokens: number | null;
            /** Reason */
            reason: string | null;
        };
        /** @description The stream is complete; nothing follows. */
        Done: {
            session_id: string;
        };
        /** @description `done`: The stream is complete; nothing follows. */
        DoneEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * ErrorBody
         * @description What went wrong. ``code`` is for programs, ``message`` for people.
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
         * @description The body of every error.
         */
        ErrorEnvelope: {
            error: components["schemas"]["ErrorBody"];
        };
        /**
         * ExecutionList
         * @description The last hundred runs, oldest first.
         */
        ExecutionList: {
            /** Executions */
            executions: components["schemas"]["ToolExecution"][];
            statistics: components["schemas"]["AllExecutionStatistics"];
        };
        /**
         * ExecutionStatistics
         * @description Counts and mean time, in seconds, of some runs.
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
         * FileCall
         * @description A tool call as Ollama writes it.
         */
        FileCall: {
            /** Id */
            id: string;
            function: components["schemas"]["FileCallFunction"];
        } & {
            [key: string]: unknown;
        };
        /**
         * FileCallFunction
         * @description What is called, with what.
         */
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
         * FileMessage
         * @description A message of a session file.
         */
        FileMessage: {
            /**
             * Role
             * @enum {string}
             */
            role: "system" | "user" | "assistant" | "tool";
            /** Content */
            content: string;
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
        } & {
            [key: string]: unknown;
        };
        /**
         * FileMetadata
         * @description The head of a session file.
         */
        FileMetadata: {
            /** Model */
            model: string;
        } & {
            [key: string]: unknown;
        };
        /**
         * Function
         * @description The function of a call; ``arguments`` are JSON.
         */
        Function: {
            /** Name */
            name: string;
            /**
             * Arguments
             * @default {}
             */
            arguments?: string;
        };
        /**
         * FunctionTool
         * @description A function of the client's that the model may call; ``parameters`` is a JSON schema.
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
         * @description The server serves, or there would be no answer; Ollama's state is ``ollama_connected`` alone.
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
         * ImagePart
         * @description An image, for models that can see.
         */
        ImagePart: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "image_url";
            image_url: components["schemas"]["ImageUrl"];
        };
        /**
         * ImageUrl
         * @description An image, as a data URL.
         */
        ImageUrl: {
            /** Url */
            url: string;
        };
        /**
         * JsonSchema
         * @description What the answer must look like.
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
        /** @description The answer is whole and stored. Counts are tokens, as Ollama counted them. */
        MessageComplete: {
            message_id: string;
            model: string;
            eval_count: number | null;
            prompt_eval_count: number | null;
            context_window: {
                [key: string]: unknown;
            };
            done_reason: string | null;
        };
        /** @description `message_complete`: The answer is whole and stored. Counts are tokens, as Ollama counted them. */
        MessageCompleteEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * @description A new text for a user message, which keeps its images.
         * @example {
         *       "content": "What is the capital of Spain?"
         *     }
         */
        MessageEdit: {
            /**
             * Content
             * @description The new text.
             */
            content: string;
        };
        /**
         * MessageList
         * @description The messages of a session; the position in the list is the message's index.
         */
        MessageList: {
            /** Session Id */
            session_id: string;
            /** Messages */
            messages: components["schemas"]["StoredMessage"][];
        };
        /**
         * Metadata
         * @description ``session_id``: the session whose turn this is. The rest is the client's own.
         */
        Metadata: {
            /** Session Id */
            session_id?: string | null;
        };
        /**
         * Model
         * @description A model that can chat. ``size_mb`` is in units of 1024 * 1024 bytes, ``context_length`` in tokens.
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
        };
        /**
         * ModelList
         * @description All models that can chat, in Ollama's order.
         */
        ModelList: {
            /** Models */
            models: components["schemas"]["Model"][];
        };
        /**
         * NamedFunction
         * @description A function by name.
         */
        NamedFunction: {
            /** Name */
            name: string;
        };
        /**
         * NamedTool
         * @description The one tool that the model should call: it is offered no other.
         */
        NamedTool: {
            /**
             * Type
             * @constant
             */
            type: "function";
            function: components["schemas"]["NamedFunction"];
        };
        /**
         * OpenAIError
         * @description What went wrong. ``code`` is for programs, ``param`` the field that it is about.
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
         * @description The body of every error of these routes.
         */
        OpenAIErrorEnvelope: {
            error: components["schemas"]["OpenAIError"];
        };
        /**
         * OpenAIModel
         * @description Something that can be asked for as ``model``. ``created`` is not known, and 0.
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
         * @description All of them: Ollama's models first, then agents.
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
         * OpenWebUIBareChat
         * @description A chat as old exports have it, with nothing beside it.
         */
        OpenWebUIBareChat: {
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
            /**
             * Messages
             * @default null
             */
            messages?: (components["schemas"]["OpenWebUIMessage"] | null)[] | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * OpenWebUIChat
         * @description A chat of an Open WebUI export. Times are in seconds since 1970.
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
        } & {
            [key: string]: unknown;
        };
        /**
         * OpenWebUIContent
         * @description What the chat consists of: ``history``, or, before there were trees, ``messages`` alone.
         *
         *     ``timestamp`` is in milliseconds.
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
            /** @default null */
            history?: components["schemas"]["OpenWebUIHistory"] | null;
            /**
             * Messages
             * @default null
             */
            messages?: (components["schemas"]["OpenWebUIMessage"] | null)[] | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * OpenWebUIHistory
         * @description The tree; ``currentId`` is the last message of the branch that is shown.
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
         * @description A message and where it hangs. ``timestamp`` is in seconds since 1970. One without a role was never shown.
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
             * Output
             * @default null
             */
            output?: unknown;
        } & {
            [key: string]: unknown;
        };
        /**
         * OpenWebUIParams
         * @description The chat's own settings.
         */
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
         * PendingConfirmation
         * @description A call that waits for approval; ``agent_name`` is set for calls of an agent.
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
            agent_name: string | null;
        };
        /**
         * PendingConfirmations
         * @description All calls of a session that wait, oldest first.
         */
        PendingConfirmations: {
            /** Confirmations */
            confirmations: components["schemas"]["PendingConfirmation"][];
        };
        /**
         * PlainFormat
         * @description Text, or any JSON object.
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
         * @description A new text for a prompt file; not blank, under 10,000 characters.
         */
        PromptContent: {
            /**
             * Content
             * @description The text.
             */
            content: string;
        };
        /**
         * PromptEntry
         * @description A prompt file as the list shows it.
         */
        PromptEntry: {
            /** Filename */
            filename: string;
            /** Preview */
            preview: string;
            /** Word Count */
            word_count: number;
        };
        /**
         * PromptFile
         * @description A prompt file: a plain name that ends in ``.md`` or ``.txt``, and its text.
         */
        PromptFile: {
            /**
             * Content
             * @description The text.
             */
            content: string;
            /**
             * Filename
             * @description A plain name that ends in `.md` or `.txt`.
             * @example helpful.md
             */
            filename: string;
        };
        /**
         * PromptList
         * @description All prompt files by name.
         */
        PromptList: {
            /** Prompts */
            prompts: components["schemas"]["PromptEntry"][];
        };
        /**
         * Ready
         * @description New turns are taken, and what they bring can be stored.
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
         * RunStatus
         * @description The running or latest turn of a session; ``idle`` when there was none lately.
         */
        RunStatus: {
            /** Run Id */
            run_id: string | null;
            /**
             * State
             * @enum {string}
             */
            state: "idle" | "running" | "completed" | "failed" | "stopped" | "cancelled";
        };
        /**
         * SchemaFormat
         * @description JSON of a schema.
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
         * Session
         * @description A session without its messages. ``preview`` is the beginning of the first user message.
         *
         *     ``title`` is the one that was set or else, by itself, of the summary or the first user message.
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
                [key: string]: unknown;
            } | null;
            /** Summary Model */
            summary_model: string | null;
            /** Format Version */
            format_version: string;
            tool_settings: components["schemas"]["ToolSettings"];
            agent_settings: components["schemas"]["AgentSettings"];
            /** Context Window Config */
            context_window_config: {
                [key: string]: unknown;
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
        };
        /**
         * SessionCreate
         * @description A new session. ``system_prompt_source_file`` alone loads that prompt file; with a text it labels it.
         * @example {
         *       "model": "qwen3:14b"
         *     }
         */
        SessionCreate: {
            /**
             * Title
             * @description One line; without it the session has one of its own.
             */
            title?: string | null;
            /**
             * Options
             * @description Ollama's options, such as `temperature`, `seed` or `num_predict`.
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
             * @description How long Ollama keeps the model in memory: seconds, or a duration such as `5m`.
             */
            keep_alive?: string | number | null;
            /**
             * Think
             * @description Whether, or how much, models that can think do so.
             */
            think?: boolean | ("low" | "medium" | "high" | "max") | null;
            /**
             * Format
             * @description The form of answers: `json`, or a JSON schema.
             */
            format?: "json" | {
                [key: string]: unknown;
            } | null;
            /** @description Which tools the model may call, and which calls are asked about. */
            tool_settings?: components["schemas"]["ToolSettingsRequest"] | null;
            /** @description Which agents the model may call. */
            agent_settings?: components["schemas"]["AgentSettingsRequest"] | null;
            /**
             * Model
             * @description One of Ollama's models that can chat; the tag is optional.
             */
            model: string;
            /**
             * System Prompt
             * @description The system message.
             */
            system_prompt?: string | null;
            /**
             * System Prompt Source File
             * @description The prompt file that the system message comes from.
             */
            system_prompt_source_file?: string | null;
        };
        /**
         * SessionDetail
         * @description A session with its messages.
         *
         *     ``images`` of a user message are ``{"sha256", "media_type"}`` each; their bytes are at ``blobs/{sha256}``.
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
                [key: string]: unknown;
            } | null;
            /** Summary Model */
            summary_model: string | null;
            /** Format Version */
            format_version: string;
            tool_settings: components["schemas"]["ToolSettings"];
            agent_settings: components["schemas"]["AgentSettings"];
            /** Context Window Config */
            context_window_config: {
                [key: string]: unknown;
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
            /** Messages */
            messages: components["schemas"]["StoredMessage"][];
        };
        /**
         * SessionFile
         * @description A session as it is stored and exported: `metadata`, which is what lists show of it, and its `messages`.
         *
         *     In exports, `blobs` are the images that messages name: base64 of their bytes, by their SHA-256 in hex.
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
        } & {
            [key: string]: unknown;
        };
        /**
         * SessionFork
         * @description Which message is the last that the new session shares: its position or its id. Without either, the last one.
         */
        SessionFork: {
            /**
             * Message Index
             * @description Its position, from 0.
             */
            message_index?: number | null;
            /**
             * Message Id
             * @description Its id.
             */
            message_id?: string | null;
        };
        /**
         * SessionImport
         * @description Exported sessions, one or many: of this server, or chats of Open WebUI; older ones are bare.
         */
        SessionImport: components["schemas"]["SessionFile"] | components["schemas"]["OpenWebUIChat"] | components["schemas"]["OpenWebUIBareChat"] | (components["schemas"]["SessionFile"] | components["schemas"]["OpenWebUIChat"] | components["schemas"]["OpenWebUIBareChat"])[];
        /**
         * SessionList
         * @description Sessions, the last changed first.
         */
        SessionList: {
            /** Sessions */
            sessions: components["schemas"]["Session"][];
        };
        /**
         * SessionPatch
         * @description What to change. An absent field is kept, null clears it, nested objects are replaced whole.
         * @example {
         *       "title": "Paris"
         *     }
         */
        SessionPatch: {
            /**
             * Title
             * @description One line; without it the session has one of its own.
             */
            title?: string | null;
            /**
             * Options
             * @description Ollama's options, such as `temperature`, `seed` or `num_predict`.
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
             * @description How long Ollama keeps the model in memory: seconds, or a duration such as `5m`.
             */
            keep_alive?: string | number | null;
            /**
             * Think
             * @description Whether, or how much, models that can think do so.
             */
            think?: boolean | ("low" | "medium" | "high" | "max") | null;
            /**
             * Format
             * @description The form of answers: `json`, or a JSON schema.
             */
            format?: "json" | {
                [key: string]: unknown;
            } | null;
            /** @description Which tools the model may call, and which calls are asked about. */
            tool_settings?: components["schemas"]["ToolSettingsRequest"] | null;
            /** @description Which agents the model may call. */
            agent_settings?: components["schemas"]["AgentSettingsRequest"] | null;
            /**
             * Model
             * @description One of Ollama's models that can chat; the tag is optional.
             */
            model?: string;
            /**
             * Summary Model
             * @description The model that summarizes the session.
             */
            summary_model?: string | null;
            /** @description A window set by hand; null leaves it to the server again. */
            context_window?: components["schemas"]["WindowOverride"] | null;
        };
        /**
         * SessionStatus
         * @description Where a session stands.
         */
        SessionStatus: {
            /** Session Id */
            session_id: string;
            /** Model */
            model: string;
            /** Message Count */
            message_count: number;
            context_window: components["schemas"]["WindowStatus"];
            /** Tools Enabled */
            tools_enabled: boolean;
            /** Active Tools */
            active_tools: string[];
            /** Execution Policy */
            execution_policy: string;
            /** Agents Enabled */
            agents_enabled: boolean;
            /** Enabled Agents */
            enabled_agents: string[];
            /** System Prompt File */
            system_prompt_file: string | null;
            /** Summary */
            summary: {
                [key: string]: unknown;
            } | null;
            /** Summary Model */
            summary_model: string | null;
        };
        /**
         * SessionsImported
         * @description The sessions that were made, in the order of the file.
         */
        SessionsImported: {
            /** Sessions */
            sessions: components["schemas"]["Session"][];
        };
        /** @description In place of events that are no longer kept: all text and thinking of the turn up to this event. */
        Snapshot: {
            content: string;
            thinking: string;
        };
        /** @description `snapshot`: In place of events that are no longer kept: all text and thinking of the turn up to this event. */
        SnapshotEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * @description What a turn waits for before its next words. `elapsed` is in seconds, since the turn began.
         *
         *     `queued`: Ollama answers others first; `loading_model`; `processing_prompt`; `compacting`: the model sums
         *     up the oldest turns.
         */
        Status: {
            state: string;
            elapsed: number;
        };
        /**
         * @description `status`: What a turn waits for before its next words. `elapsed` is in seconds, since the turn began.
         *
         *     `queued`: Ollama answers others first; `loading_model`; `processing_prompt`; `compacting`: the model sums
         *     up the oldest turns.
         */
        StatusEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * StoredCall
         * @description A tool call as Ollama writes it.
         */
        StoredCall: {
            /** Id */
            id: string;
            function: components["schemas"]["StoredFunction"];
        } & {
            [key: string]: unknown;
        };
        /**
         * StoredFunction
         * @description What is called, with what. ``index`` is the position among the calls of its message.
         */
        StoredFunction: {
            /** Index */
            index?: number | null;
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
         * StoredImage
         * @description An image of a message; its bytes are at ``blobs/{sha256}``.
         */
        StoredImage: {
            /** Sha256 */
            sha256: string;
            /** Media Type */
            media_type: string;
        };
        /**
         * StoredMessage
         * @description A message as it is stored. Its role decides which fields it has besides the first four; there may be others.
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
             * @description system: the prompt file that it came from.
             */
            source_file?: string | null;
            /**
             * Images
             * @description user: what was shown to the model with it.
             */
            images?: components["schemas"]["StoredImage"][] | null;
            /**
             * Model
             * @description assistant: who answered.
             */
            model?: string | null;
            /**
             * Thinking
             * @description assistant: what the model thought.
             */
            thinking?: string | null;
            /**
             * Tool Calls
             * @description assistant: what the model called.
             */
            tool_calls?: components["schemas"]["StoredCall"][] | null;
            /**
             * Handed Back
             * @description assistant: ids of the calls that the client runs.
             */
            handed_back?: string[] | null;
            /**
             * Eval Count
             * @description assistant: tokens of the answer.
             */
            eval_count?: number | null;
            /**
             * Prompt Eval Count
             * @description assistant: tokens of the prompt.
             */
            prompt_eval_count?: number | null;
            /**
             * Total Duration
             * @description assistant: nanoseconds of the whole request, as Ollama tells them.
             */
            total_duration?: number | null;
            /**
             * Load Duration
             * @description assistant: nanoseconds that loading the model took.
             */
            load_duration?: number | null;
            /**
             * Prompt Eval Duration
             * @description assistant: nanoseconds that reading the prompt took.
             */
            prompt_eval_duration?: number | null;
            /**
             * Eval Duration
             * @description assistant: nanoseconds that the answer took.
             */
            eval_duration?: number | null;
            /**
             * Done Reason
             * @description assistant: why it ended, such as `stop` or `length`.
             */
            done_reason?: string | null;
            /**
             * Interrupted
             * @description assistant and tool: whether it was cut off.
             */
            interrupted?: boolean | null;
            /**
             * Tool Name
             * @description tool: whose result it is.
             */
            tool_name?: string | null;
            /**
             * Tool Call Id
             * @description tool: of which call it is the result.
             */
            tool_call_id?: string | null;
            /**
             * Success
             * @description tool: whether it ran to its end.
             */
            success?: boolean | null;
            /**
             * Error Code
             * @description tool: why not.
             */
            error_code?: string | null;
            /**
             * Decided By
             * @description tool: who let it run, or did not.
             */
            decided_by?: ("policy" | "user" | "timeout") | null;
            /**
             * Arguments
             * @description tool: what it was called with, where that was changed by who approved.
             */
            arguments?: {
                [key: string]: unknown;
            } | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * StreamOptions
         * @description ``include_usage``: a last chunk tells the tokens.
         */
        StreamOptions: {
            /** Include Usage */
            include_usage?: boolean | null;
        };
        /**
         * SummarizeRequest
         * @description Which model shall summarize; it is remembered as the session's ``summary_model``.
         * @example {
         *       "model": "qwen3:4b"
         *     }
         */
        SummarizeRequest: {
            /**
             * Model
             * @description Without it, the session's `summary_model`, or its model.
             */
            model?: string | null;
        };
        /**
         * SummaryOut
         * @description A summary and the model that made it; nulls where there is none.
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
         * @description Instructions.
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
         * @description A new system prompt. ``source_file`` alone loads that prompt file; with a text it labels it.
         * @example {
         *       "source_file": "helpful.md"
         *     }
         */
        SystemPromptUpdate: {
            /**
             * Content
             * @description The system message.
             */
            content?: string | null;
            /**
             * Source File
             * @description The prompt file that it comes from.
             */
            source_file?: string | null;
        } | {
            content: string;
        } | {
            source_file: string;
        };
        /**
         * TextPart
         * @description A text.
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
        /** @description A piece of the model's reasoning, for models that think and turns that ask for it. */
        ThinkingDelta: {
            content: string;
        };
        /** @description `thinking_delta`: A piece of the model's reasoning, for models that think and turns that ask for it. */
        ThinkingDeltaEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * ToolCallExecuted
         * @description A tool call of the turn and how it ended. ``execution_time`` is in seconds.
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
        /** @description A tool runs now; nobody needs to approve of it. */
        ToolCalled: {
            tool_name: string;
            arguments: {
                [key: string]: unknown;
            };
            call_index: number;
        };
        /** @description `tool_call`: A tool runs now; nobody needs to approve of it. */
        ToolCalledEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
        /** @description A call waits for approval; `confirm-tool` decides. `agent_name` is set for calls of an agent. */
        ToolConfirmationRequired: {
            tool_name: string;
            arguments: {
                [key: string]: unknown;
            };
            call_index: number;
            confirmation_id: string;
            agent_name: string | null;
        };
        /** @description `tool_call_confirmation_required`: A call waits for approval; `confirm-tool` decides. `agent_name` is set for calls of an agent. */
        ToolConfirmationRequiredEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
        /** @description The results of the tools go to the model now. */
        ToolContinuationStart: {
            message: string;
        };
        /** @description `tool_continuation_start`: The results of the tools go to the model now. */
        ToolContinuationStartEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * @description What was decided.
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
         * @description Approve or deny a pending call. ``arguments`` replace those of the model; the model is told the ``reason``.
         * @example {
         *       "approved": true,
         *       "confirmation_id": "6f1e2d3c4b5a"
         *     }
         */
        ToolDecision: {
            /**
             * Confirmation Id
             * @description The id in the event that asks, or in the list of pending calls.
             */
            confirmation_id: string;
            /**
             * Approved
             * @description Whether the call runs.
             */
            approved: boolean;
            /**
             * Arguments
             * @description To be used in place of the model's; they are checked again.
             */
            arguments?: {
                [key: string]: unknown;
            } | null;
            /**
             * Reason
             * @description Told to the model.
             */
            reason?: string | null;
            /**
             * Remember
             * @description With `session`, an approved tool is not asked about again in this session.
             * @default once
             * @enum {string}
             */
            remember?: "once" | "session";
        };
        /**
         * ToolDetails
         * @description A tool with its JSON schema, as models get it.
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
         * @description A run of a tool. ``execution_time`` is in seconds.
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
         * @description When a tool call needs a human's approval.
         * @enum {string}
         */
        ToolExecutionPolicy: "always_confirm" | "never_confirm" | "confirm_destructive";
        /**
         * ToolList
         * @description All tools by name, groups of them, and what cannot be used. An MCP server is a group.
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
         * @description What came of a call.
         */
        ToolMessage: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            role: "tool";
            /** Content */
            content: string | components["schemas"]["TextPart"][];
            /** Tool Call Id */
            tool_call_id: string;
        };
        /**
         * ToolParameter
         * @description A parameter as Python writes its type.
         */
        ToolParameter: {
            /** Type */
            type: string;
            /** Description */
            description: string;
        };
        /**
         * ToolProblem
         * @description A tool, a file or an MCP server that cannot be used, and why.
         */
        ToolProblem: {
            /** Name */
            name: string;
            /** Message */
            message: string;
        };
        /** @description How a call of a tool ended. */
        ToolResult: {
            tool_name: string;
            success: boolean;
            result: string | null;
            error_message: string | null;
            error_code: string | null;
            call_index: number;
        };
        /** @description `tool_result`: How a call of a tool ended. */
        ToolResultEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * @description Which tools a session may use; ``tools`` and ``tool_group`` together mean the union.
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
         * @description Which tools the model may call, and which calls need approval.
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
             * @description Tools whose calls were approved for the session.
             */
            approved_tools?: string[] | null;
        };
        /**
         * ToolSummary
         * @description A tool; ``destructive`` tools are asked about under the policy ``confirm_destructive``.
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
        /** @description The turn failed; what was said until then is stored. `done` still follows. */
        TurnError: {
            code: string;
            message: string;
            details: {
                [key: string]: unknown;
            };
        };
        /** @description `error`: The turn failed; what was said until then is stored. `done` still follows. */
        TurnErrorEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * @description Something the user should know that does not end the turn.
         *
         *     `THINKING_NOT_SUPPORTED`, `TOOLS_NOT_SUPPORTED`, `IMAGES_NOT_SUPPORTED`: the model cannot, and answers
         *     without. `IMAGE_NOT_FOUND`: images of the history are not stored any more, and are left out.
         *     `TOOL_LIMIT_REACHED`: the model called tools for too long, and answers without them now.
         *     `TOOL_CALLS_LEFT_OUT`: the model made more calls in one answer than the limit; the last ones are left out.
         *     `ANSWER_CUT`: the answer has reached the end of the context window. `PROMPT_TRUNCATED`: Ollama has cut the
         *     prompt. `MODEL_NOT_FOUND`: the model of an agent is not there; the session's own answers.
         */
        TurnWarning: {
            code: string;
            message: string;
        };
        /**
         * @description `warning`: Something the user should know that does not end the turn.
         *
         *     `THINKING_NOT_SUPPORTED`, `TOOLS_NOT_SUPPORTED`, `IMAGES_NOT_SUPPORTED`: the model cannot, and answers
         *     without. `IMAGE_NOT_FOUND`: images of the history are not stored any more, and are left out.
         *     `TOOL_LIMIT_REACHED`: the model called tools for too long, and answers without them now.
         *     `TOOL_CALLS_LEFT_OUT`: the model made more calls in one answer than the limit; the last ones are left out.
         *     `ANSWER_CUT`: the answer has reached the end of the context window. `PROMPT_TRUNCATED`: Ollama has cut the
         *     prompt. `MODEL_NOT_FOUND`: the model of an agent is not there; the session's own answers.
         */
        TurnWarningEvent: {
            /**
             * @description The run and the number of the event, which `Last-Event-ID` takes.
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
         * Usage
         * @description Tokens as Ollama counted them, of all requests that the turn took.
         */
        Usage: {
            /** Prompt Tokens */
            prompt_tokens: number;
            /** Completion Tokens */
            completion_tokens: number;
            /** Total Tokens */
            total_tokens: number;
        };
        /**
         * UserMessage
         * @description What the user says.
         */
        UserMessage: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            role: "user";
            /** Content */
            content: string | (components["schemas"]["TextPart"] | components["schemas"]["ImagePart"])[];
        };
        /**
         * WindowOverride
         * @description A context window set by hand, in tokens, capped at the model's maximum; null leaves it to the server again.
         */
        WindowOverride: {
            /** Current Window */
            current_window: number | null;
        };
        /**
         * WindowStatus
         * @description The context window of a session. Windows and usage are in tokens; ``usage_ratio`` is usage by window.
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
             * @description The session in which the model's window was set by hand.
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
                /** @description Makes a repeated request listen to the turn that the first one began, also after it has ended. */
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
            /** @description `EMPTY_HISTORY` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_NOT_FOUND`, `MODEL_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_BUSY` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `IDEMPOTENCY_KEY_REUSED`, `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SHUTTING_DOWN`, `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    attach: {
        parameters: {
            query?: {
                /** @description The id of the last event heard, or its number; `Last-Event-ID` goes before it. */
                after?: string | null;
            };
            header?: {
                /** @description The id of the last event heard, as `EventSource` sends it. */
                "Last-Event-ID"?: string | null;
            };
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Events, `done` the last. */
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
                    "text/event-stream": components["schemas"]["ChatStreamEvent"];
                };
            };
            /** @description There is nothing, or nothing more, to hear. */
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    stream_chat: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes a repeated request listen to the turn that the first one began, also after it has ended. */
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
            /** @description Events, `done` the last. */
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
                    "text/event-stream": components["schemas"]["ChatStreamEvent"];
                };
            };
            /** @description `EMPTY_HISTORY` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_NOT_FOUND`, `MODEL_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_BUSY` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `IDEMPOTENCY_KEY_REUSED`, `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SHUTTING_DOWN`, `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
            /** @description `CONFIRMATION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `TOOL_CONFIRMATION_TIMEOUT` */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `CONFIRMATION_RESOLVED` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SERVER_LOST` */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_sessions: {
        parameters: {
            query?: {
                /** @description Words that all occur in what is found. */
                q?: string | null;
                /** @description How many at most; without it, all. */
                limit?: number | null;
                /** @description How many to leave out at the beginning. */
                offset?: number;
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
                    /** @description Sessions on all pages. */
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["Session"];
                };
            };
            /** @description `MODEL_NOT_FOUND`, `PROMPT_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY`, `SHUTTING_DOWN` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["Session"];
                };
            };
            /** @description `SESSION_NOT_FOUND`, `MODEL_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    fork_session: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    export_session: {
        parameters: {
            query?: {
                /** @description JSON can be imported; Markdown is to be read. */
                format?: "json" | "markdown";
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
            /** @description The image, as it was sent. */
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["SessionDetail"];
                };
            };
            /** @description `INVALID_MESSAGE_INDEX` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_BUSY` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_BUSY` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_BUSY` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SESSION_NOT_FOUND`, `MODEL_NOT_FOUND` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_BUSY` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
            /** @description Events, `complete` the last. */
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
                    "text/event-stream": components["schemas"]["CompareStreamEvent"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `SHUTTING_DOWN` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `OLLAMA_UNREACHABLE`, `OLLAMA_ERROR` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
        };
    };
    list_agent_chats: {
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
                    "application/json": components["schemas"]["AgentChatList"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `AGENT_INVALID` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `VALIDATION_ERROR` */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description `STORAGE_FAILED` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["ErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
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
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `model_not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_unreachable`, `ollama_error` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
        };
    };
    create_chat_completion: {
        parameters: {
            query?: never;
            header?: {
                /** @description The session whose turn this is; goes before `metadata.session_id`. */
                "X-Mochi-Session"?: string | null;
                /** @description Names of tools of this server that the model may call, with commas. */
                "X-Mochi-Tools"?: string | null;
                /** @description Without a session: which calls run. Others are denied, for nobody can be asked. */
                "X-Mochi-Tool-Policy"?: components["schemas"]["ToolExecutionPolicy"] | null;
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
            /** @description The completion, whole or as chunks. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Completion"];
                    "text/event-stream": {
                        data: string;
                    };
                };
            };
            /** @description `invalid_request`, `context_length_exceeded`, `agent_invalid` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `model_not_found`, `session_not_found`, `tool_not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `session_busy`, `session_conflict` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `storage_failed` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `ollama_unreachable`, `ollama_error` */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description `storage_busy`, `shutting_down` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
            /** @description Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenAIErrorEnvelope"];
                };
            };
        };
    };
}
