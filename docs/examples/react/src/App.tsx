// A chat page for mochi-server. The AI SDK sends the messages and reads the streams.

import { useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  getToolName,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  type ChatAddToolApproveResponseFunction,
  type ToolUIPart,
} from "ai";
import { useEffect, useState, useSyncExternalStore } from "react";
import { history, type Message } from "./history";
import { API, createSession, describe, get, post, request, type Schemas } from "./server";

/** The page: select a chat, or select a model and create a chat. */
export function App() {
  const session = useSyncExternalStore(subscribeToAddress, sessionInAddress);
  const [sessions, setSessions] = useState<Schemas["Session"][]>([]);
  const [models, setModels] = useState<Schemas["Model"][]>([]);
  const [modelName, setModelName] = useState("");
  const [loaded, setLoaded] = useState<{ session: string; messages: Message[] }>();
  const [problem, setProblem] = useState("");

  const report = (error: Error) => setProblem(describe(error));
  const listSessions = () =>
    get<Schemas["SessionList"]>("/sessions").then(({ sessions }) => setSessions(sessions), report);

  useEffect(() => {
    void listSessions();
    get<Schemas["ModelList"]>("/models").then(({ models }) => setModels(models), report);
  }, []);

  useEffect(() => {
    let isCurrent = true;
    setProblem("");
    if (session) history(session).then((messages) => isCurrent && setLoaded({ session, messages }), report);
    return () => void (isCurrent = false);
  }, [session]);

  async function create() {
    const model = models.find(({ name }) => name === modelName) ?? models[0];
    if (!model) return;
    location.hash = await createSession(model);
    await listSessions();
  }

  return (
    <>
      <header>
        <h1>Chat with mochi-server</h1>
        <label>
          Chat
          <select value={session} onChange={(event) => (location.hash = event.target.value)}>
            <option value="">Select a chat</option>
            {sessions.map(({ session_id, title, preview, model }) => (
              <option key={session_id} value={session_id}>{title || preview || "New chat"} ({model})</option>
            ))}
          </select>
        </label>
        <label>
          Model of a new chat
          <select value={modelName} onChange={(event) => setModelName(event.target.value)}>
            {models.map(({ name }) => <option key={name}>{name}</option>)}
          </select>
        </label>
        <button type="button" disabled={!models.length} onClick={() => create().catch(report)}>New chat</button>
      </header>
      {problem && <p role="alert">{problem}</p>}
      {session && loaded?.session === session ? (
        <Chat key={session} {...loaded} onTurnEnd={listSessions} onError={report} />
      ) : (
        <main>{!session && <p>Select a chat, or select a model and create a new chat.</p>}</main>
      )}
    </>
  );
}

/** The ID of the chat is in the address of the page, so that a reload shows the same chat. */
const sessionInAddress = () => location.hash.slice(1);

function subscribeToAddress(onChange: () => void) {
  addEventListener("hashchange", onChange);
  return () => removeEventListener("hashchange", onChange);
}

interface ChatProps {
  session: string;
  messages: Message[];
  onTurnEnd: () => void;
  onError: (error: Error) => void;
}

/** One chat: its messages, and a form for the next message. */
function Chat({ session, messages: initialMessages, onTurnEnd, onError }: ChatProps) {
  const [transport] = useState(
    () =>
      new DefaultChatTransport<Message>({
        api: `${API}/chat/${session}/ai-sdk`,
        fetch: request,
        body: { on_disconnect: "continue" }, // The turn continues during a reload of the page.
      }),
  );
  const { messages, status, error, sendMessage, addToolApprovalResponse } = useChat<Message>({
    id: session,
    messages: initialMessages,
    transport,
    resume: true,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses, // Send each decision at once.
    onFinish: ({ isError }) => isError || onTurnEnd(),
  });
  const isAnswering = status === "submitted" || status === "streaming";

  return (
    <>
      <main>
        <div role="log" aria-label="Messages" aria-busy={isAnswering}>
          {messages.map(({ id, role, parts }) => (
            <article key={id}>
              <h2>{role === "user" ? "You" : "Assistant"}</h2>
              {parts.map((part, index) => <Part key={index} part={part} respond={addToolApprovalResponse} />)}
            </article>
          ))}
          {error && <p role="alert">{describe(error)}</p>}
        </div>
      </main>
      <form action={(data) => void sendMessage({ text: String(data.get("text")) })}>
        <label>Message <input name="text" required autoComplete="off" /></label>
        <button disabled={isAnswering}>Send</button>
        <button type="button" disabled={!isAnswering} onClick={() => post(`/chat/${session}/stop`).catch(onError)}>
          Stop
        </button>
        <span role="status">{isAnswering && "The model is answering …"}</span>
      </form>
    </>
  );
}

interface PartProps<T> {
  part: T;
  respond: ChatAddToolApproveResponseFunction;
}

/** One part of a message: text, reasoning, a warning or a tool call. */
function Part({ part, respond }: PartProps<Message["parts"][number]>) {
  if (part.type === "text") return <p>{part.text}</p>;
  if (part.type === "reasoning") return <details><summary>Reasoning</summary><p>{part.text}</p></details>;
  if (part.type === "data-warning") return <p className="note">{part.data.message}</p>;
  return isToolUIPart(part) ? <ToolCall part={part} respond={respond} /> : null;
}

const STATES: Record<ToolUIPart["state"], string> = {
  "input-streaming": "starts",
  "input-available": "is running",
  "approval-requested": "needs your approval",
  "approval-responded": "has received your decision",
  "output-available": "has ended",
  "output-error": "has failed",
  "output-denied": "was denied",
};

function ToolCall({ part, respond }: PartProps<Extract<Message["parts"][number], { toolCallId: string }>>) {
  return (
    <section>
      <h3><code>{getToolName(part)}</code> {STATES[part.state]}</h3>
      <h4>Input</h4>
      <pre>{JSON.stringify(part.input, null, 2)}</pre>
      {part.state === "output-available" && <><h4>Output</h4><pre>{String(part.output)}</pre></>}
      {part.state === "output-error" && <p className="error">{part.errorText}</p>}
      {part.state === "approval-requested" && [true, false].map((approved) => (
        <button key={String(approved)} type="button" onClick={() => respond({ id: part.approval.id, approved })}>
          {approved ? "Approve" : "Deny"}
        </button>
      ))}
    </section>
  );
}
