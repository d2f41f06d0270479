"""Lets what schemathesis makes up get past the first checks: a schema cannot say which model there is, which messages
may be without a text, and that two names of one parameter want the same value. Without this, hardly a request comes as
far as the engine."""

import schemathesis

MODEL = "target"


@schemathesis.hook
def before_call(_context, case, _kwargs):
    body = case.body
    if not isinstance(body, dict):
        return
    if isinstance(body.get("model"), str):
        body["model"] = MODEL
    if isinstance(body.get("max_completion_tokens"), int) and isinstance(body.get("max_tokens"), int):
        body["max_tokens"] = body["max_completion_tokens"]
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else []:
        if isinstance(message, dict) and "role" in message and message.get("content") is None:
            message["content"] = "Who are you?"
