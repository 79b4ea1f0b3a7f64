"""Background tasks of Open WebUI: each published request template, shortened, and the answer of the
model `task`.
"""

from __future__ import annotations

import json
from typing import Any

from mochi_stub import Message, Prompt, StubServer
from mochi_stub.replies.built_in import ui_task_reply
from tests.stub.requests import contents, send_message, send_request
from tests.support.cases import cases

PHRASE = "THIS IS A TEST OF MINI-MEDIATOR'S AUTOCOMPLETE SYSTEM."
HISTORY = """### Chat History:
<chat_history>
USER: How do I bake bread?
ASSISTANT: With flour.
</chat_history>"""
TITLE = f"""### Task:
Generate a concise, 3-5 word title with an emoji summarizing the chat history.
### Guidelines:
- The output must be a single, raw JSON object, without any markdown code fences or other encapsulating text.
### Output:
JSON format: {{ "title": "your concise title here" }}
### Examples:
- {{ "title": "📉 Stock Market Trends" }},
- {{ "title": "Remote Work Productivity Tips" }}
{HISTORY}"""
TAGS = f"""### Task:
Generate 1-3 broad tags categorizing the main themes of the chat history, along with 1-3 more specific subtopic tags.

### Guidelines:
- If content is too short (less than 3 messages) or too diverse, use only ["General"]

### Output:
JSON format: {{ "tags": ["tag1", "tag2", "tag3"] }}

{HISTORY}"""
FOLLOW_UPS = f"""### Task:
Suggest 3-5 relevant follow-up questions or prompts that the user might naturally ask next in this conversation.
### Guidelines:
- Response must be a JSON object with a "follow_ups" key containing an array of strings, no extra text or formatting.
### Output:
JSON format: {{ "follow_ups": ["Question 1?", "Question 2?", "Question 3?"] }}
{HISTORY}"""
QUERIES = f"""### Task:
Analyze the chat history to determine the necessity of generating search queries, in the given language.

### Guidelines:
- When generating search queries, respond in the format: {{ "queries": ["query1", "query2"] }}, ensuring each is distinct.
- If and only if it is entirely certain that no useful results can be retrieved by a search, return: {{ "queries": [] }}.
- Today's date is: 2026-11-22.

### Output:
Strictly return in JSON format: 
{{
  "queries": ["query1", "query2"]
}}

{HISTORY}
"""  # noqa: W291
IMAGE_PROMPT = f"""### Task:
Generate a detailed prompt for am image generation task based on the given language and context.

### Guidelines:
- If the image is too complex, focus on the most prominent elements.

### Output:
Strictly return in JSON format:
{{
    "prompt": "Your detailed description here."
}}

{HISTORY}"""
AUTOCOMPLETE = """### Task:
You are an autocompletion system. Continue the text in `<text>` based on the **completion type** in `<type>` and the given language.  

### **Instructions**:
1. Analyze `<text>` for context and meaning.  
3. Start as if you are directly continuing `<text>`. Do **not** repeat, paraphrase, or respond as a model.  
5. If unsure, return: `{ "text": "" }`.  

### **Output Rules**:
- Respond only in JSON format: `{ "text": "<your_completion>" }`.

### **Examples**:
#### Example 1:  
Input:  
<type>General</type>  
<text>The sun was setting over the horizon, painting the sky</text>  
Output:  
{ "text": "with vibrant shades of orange and pink." }

---
### Context:
<chat_history>
USER: hello
</chat_history>
<type>general</type>  
<text>9+10=</text>  
#### Output:
"""  # noqa: W291
EMOJI = """Your task is to reflect the speaker's likely facial expression through a fitting emoji. Interpret emotions from the message and reflect their facial expression using fitting, diverse emojis (e.g., 😊, 😢, 😡, 😱).

Message: ```How do I bake bread?```"""
TOOLS = """Available Tools: {tools}

Your task is to choose and return the correct tool(s) from the list of available tools based on the query. Follow these guidelines:

- If no tools match the query, return an empty array: 
   {{
     "tool_calls": []
   }}

- If one or more tools match the query, construct a JSON response containing a "tool_calls" array with objects that include:
   - "name": The tool's name.
   - "parameters": A dictionary of required parameters and their corresponding values.

The format for the JSON response is strictly:
{{
  "tool_calls": [
    {{"name": "toolName1", "parameters": {{"key1": "value1"}}}},
    {{"name": "toolName2", "parameters": {{"key2": "value2"}}}}
  ]
}}"""  # noqa: W291
WEATHER = {
    "name": "get_current_weather",
    "description": "Weather of a city",
    "parameters": {"properties": {"city": {"type": "string"}}},
}
SUM = {
    "name": "calculate_sum",
    "description": "Numbers that are added up.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


@cases(
    ("template", "answer"),
    [
        (TITLE, {"title": "😀 How do I bake bread?"}),
        (TAGS, {"tags": ["How", "Bake", "Bread"]}),
        (
            FOLLOW_UPS,
            {
                "follow_ups": [
                    f"What else about {word}?" for word in ("How (1)", "bake (2)", "bread (3)")
                ]
            },
        ),
        (QUERIES, {"queries": ["How do I bake bread?", "How do I bake bread? bake"]}),
        (IMAGE_PROMPT, {"prompt": "How do I bake bread?"}),
        (AUTOCOMPLETE, {"text": PHRASE}),
    ],
    ids=["title", "tags", "follow-ups", "queries", "image prompt", "autocomplete"],
)
def test_answer_is_the_bare_object(stub: StubServer, template: str, answer: Any) -> None:
    assert (
        json.loads(send_message(stub, template, "task", stream=False).json["message"]["content"])
        == answer
    )
    body = {"model": "task", "messages": [{"role": "user", "content": template}]}
    message = send_request(stub, "POST", "/v1/chat/completions", body).json["choices"][0]["message"]
    assert json.loads(message["content"]) == answer


def test_text_of_the_phrase_alone_is_completed() -> None:
    assert ui_task_reply(Prompt("task", messages=(Message("user", "9+10="),))) == PHRASE


def test_answer_to_the_emoji_task_is_one_emoji(stub: StubServer) -> None:
    assert send_message(stub, EMOJI, "task", stream=False).json["message"]["content"] == "😀"


@cases(
    ("query", "names", "parameters"),
    [
        ("What is the weather like in Oslo today?", ["get_current_weather"], [{"city": "Oslo"}]),
        ("call get_current_weather for Bergen", ["get_current_weather"], [{"city": "Bergen"}]),
        ("how much is 12 plus 30, added up", ["calculate_sum"], [{"a": 12, "b": 30}]),
        ("hello", [], []),
    ],
)
def test_function_call_is_chosen_by_meaning(
    stub: StubServer, query: str, names: list[str], parameters: list[Any]
) -> None:
    messages = [
        {"role": "system", "content": TOOLS.format(tools=json.dumps([WEATHER, SUM]))},
        {"role": "user", "content": f'Query: History:\nUSER: """{query}"""\nQuery: {query}'},
    ]
    body = {"model": "task", "messages": messages, "stream": False}
    answer = json.loads(send_request(stub, "POST", "/api/chat", body).json["message"]["content"])
    assert [call["name"] for call in answer["tool_calls"]] == names
    assert [call["parameters"] for call in answer["tool_calls"]] == parameters


def test_messages_that_are_not_tasks_are_echoed(stub: StubServer) -> None:
    huge = "9" * 5000
    for text in (
        "hello",
        "### Task:\nSay hello.",
        "### Task:\nJSON format: {broken",
        f'### Task:\nJSON format: {{"title": {huge}}}',
    ):
        assert contents(send_message(stub, text, "task").lines).endswith(f" {text}")
