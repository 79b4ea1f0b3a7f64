// A chat page for mochi-server. The AI SDK sends the messages and reads the streams.

import { Chat as AiChat, useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  getToolName,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  type ChatAddToolApproveResponseFunction,
  type ToolUIPart,
} from "ai";
import { useEffect, useState, useSyncExternalStore } from "react";
import { history, NOT_RUN, type Message } from "./history";
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
              <option key={session_id} value={session_id}>{title || preview?.slice(0, 60) || "New chat"} ({model})</option>
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
  const [chat] = useState(() => {
    const requestOrReload: typeof fetch = async (...args) => {
      const response = await request(...args);
      const isCutOff = chat.status === "error" || (chat.status === "ready" && chat.lastMessage?.role === "user");
      if (response.status === 204 && isCutOff) { // The turn has ended meanwhile.
        const shown = chat.messages;
        const stored = await history(session);
        if (chat.messages === shown) chat.messages = stored; // Otherwise the user has sent a message meanwhile.
      }
      return response;
    };
    const chat: AiChat<Message> = new AiChat<Message>({
      id: session,
      messages: initialMessages,
      transport: new DefaultChatTransport<Message>({
        api: `${API}/chat/${session}/ai-sdk`,
        fetch: requestOrReload,
        body: { on_disconnect: "continue" }, // The turn continues during a reload of the page.
      }),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses, // Send each decision at once.
      onFinish: ({ isError }) => isError || onTurnEnd(),
    });
    return chat;
  });
  const { messages, setMessages, status, error, sendMessage, resumeStream, addToolApprovalResponse } = useChat<Message>({
    chat,
    resume: true,
  });
  const isConnectionLost = error instanceof TypeError && messages.at(-1)?.role === "assistant";
  const isAnswering = status === "submitted" || status === "streaming" || isConnectionLost;
  const isWaiting = !isAnswering && !!messages.at(-1)?.parts.some(needsApproval);

  useEffect(() => {
    if (!isConnectionLost) return;
    const timer = setTimeout(() => void resumeStream(), 1000); // A failure is another error, which starts a new timer.
    return () => clearTimeout(timer);
  }, [error, isConnectionLost, resumeStream]);

  function send(data: FormData) {
    const text = "The model waits for your decision. If you send a message, the tool call does not run. Send it?";
    if (isWaiting && !confirm(text)) return;
    void sendMessage({ text: String(data.get("text")) });
  }

  async function stop() {
    await post(`/chat/${session}/stop`);
    if (isWaiting) setMessages(await history(session)); // No stream is open that could report the end of the turn.
  }

  return (
    <>
      <main>
        <div role="log" aria-label="Messages" aria-busy={isAnswering}>
          {messages.map(({ id, role, parts }, position) => (
            <article key={id}>
              <h2>{role === "user" ? "You" : "Assistant"}</h2>
              {parts.map((part, index) => (
                <Part
                  key={index}
                  part={part}
                  isLatest={position === messages.length - 1}
                  respond={addToolApprovalResponse}
                />
              ))}
            </article>
          ))}
          {error && <p role="alert">{isConnectionLost ? "The connection is lost. Connecting again …" : describe(error)}</p>}
        </div>
      </main>
      <form action={send}>
        <label>Message <input name="text" required autoComplete="off" /></label>
        <button disabled={isAnswering}>Send</button>
        <button type="button" disabled={!isAnswering && !isWaiting} onClick={() => stop().catch(onError)}>
          Stop
        </button>
        <span role="status">
          {isAnswering && "The model is answering …"}
          {isWaiting && "The model waits for your decision."}
        </span>
      </form>
    </>
  );
}

const needsApproval = (part: Message["parts"][number]) => isToolUIPart(part) && part.state === "approval-requested";

interface PartProps<T> {
  part: T;
  isLatest: boolean; // whether the part is in the latest message: a later message withdraws a call that waits
  respond: ChatAddToolApproveResponseFunction;
}

/** One part of a message: text, reasoning, a warning or a tool call. */
function Part({ part, isLatest, respond }: PartProps<Message["parts"][number]>) {
  if (part.type === "text") return <p>{part.text}</p>;
  if (part.type === "reasoning") return <details><summary>Reasoning</summary><p>{part.text}</p></details>;
  if (part.type === "data-warning") return <p className="note">{part.data.message}</p>;
  return isToolUIPart(part) ? <ToolCall part={part} isLatest={isLatest} respond={respond} /> : null;
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

function ToolCall({ part, isLatest, respond }: PartProps<Extract<Message["parts"][number], { toolCallId: string }>>) {
  const waits = part.state === "approval-requested";
  const wasNotRun = (waits && !isLatest) || (part.state === "output-error" && part.errorText === NOT_RUN);
  return (
    <section>
      <h3><code>{getToolName(part)}</code> {wasNotRun ? "not run" : STATES[part.state]}</h3>
      <h4>Input</h4>
      <pre>{JSON.stringify(part.input, null, 2)}</pre>
      {part.state === "output-available" && <><h4>Output</h4><pre>{String(part.output)}</pre></>}
      {part.state === "output-error" && !wasNotRun && <p className="error">{part.errorText}</p>}
      {part.state === "approval-requested" && isLatest && [true, false].map((approved) => (
        <button key={String(approved)} type="button" onClick={() => respond({ id: part.approval.id, approved })}>
          {approved ? "Approve" : "Deny"}
        </button>
      ))}
    </section>
  );
}
