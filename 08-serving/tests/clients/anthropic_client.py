"""Anthropic's own client against `ladder serve`; `run.py` runs it. By hand, with anthropic installed and the server running:

    python 08-serving/tests/clients/anthropic_client.py http://127.0.0.1:8000/v1 [KEY]
"""

import sys

import anthropic
import pydantic

# It has the version in its paths.
base, key = sys.argv[1].removesuffix("/v1"), (sys.argv[2:] or ["none"])[0]
client = anthropic.Anthropic(base_url=base, api_key=key, max_retries=0)
model = "target"
asked = [{"role": "user", "content": "Who are you?"}]
usual = {"model": model, "max_tokens": 200, "messages": asked}
# The client has no parameter for it any more.
greedy = {"extra_body": {"temperature": 0}}

# Whole, streamed event by event, and as the client adds a stream up: the same.
whole = client.messages.create(**usual, **greedy)
text = whole.content[0].text
assert text and whole.stop_reason == "end_turn" and whole.usage.output_tokens > 3, whole
events = list(client.messages.create(**usual, **greedy, stream=True))
pieces = [event.delta.text for event in events if event.type == "content_block_delta"]
assert len(pieces) > 3 and "".join(pieces) == text, events
with client.messages.stream(**usual, **greedy) as stream:
    assert "".join(stream.text_stream) == text
    last = stream.get_final_message()
assert (last.content[0].text, last.stop_reason) == (text, "end_turn") and last.usage.output_tokens == whole.usage.output_tokens

# Tokens of a conversation: those that were known from before, and the others.
counted = client.messages.count_tokens(model=model, messages=asked, system="Be brief.").input_tokens
said = client.messages.create(**usual | {"max_tokens": 1}, system=[{"type": "text", "text": "Be brief."}])
assert said.stop_reason == "max_tokens"
assert counted == said.usage.input_tokens + said.usage.cache_read_input_tokens > 0, (counted, said.usage)

# A function that must be called, in pieces, and the conversation after it.
weather = {"name": "weather", "description": "tells the weather", "input_schema": {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}}
with client.messages.stream(**usual, tools=[weather], tool_choice={"type": "any"}) as stream:
    called = stream.get_final_message()
call = called.content[-1]
assert called.stop_reason == "tool_use" and call.type == "tool_use" and call.input["city"] in ["Rome", "Oslo"], called
given = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "It rains."}]}
talk = [*asked, {"role": "assistant", "content": called.content}, given]
assert client.messages.create(**usual | {"messages": talk, "max_tokens": 5}, tools=[weather]).usage.output_tokens <= 5


class Ok(pydantic.BaseModel):
    """An answer of a form."""

    ok: bool


assert isinstance(client.messages.parse(**usual, output_format=Ok).parsed_output, Ok)

# An answer that goes on with what was begun, and refusals as the client knows them.
begun = [*asked, {"role": "assistant", "content": "I am a"}]
assert client.messages.create(**usual | {"messages": begun, "max_tokens": 8}).content[0].text
for wrong, problem in [
    ({"extra_body": {"temperature": -1}}, anthropic.BadRequestError),
    ({"messages": [{"role": "user", "content": "a " * 5000}]}, anthropic.BadRequestError),
    ({"model": "nothing"}, anthropic.NotFoundError),
]:
    try:
        client.messages.create(**usual | wrong)
        raise SystemExit(f"{wrong} was not refused")
    except problem as refused:
        assert refused.body["type"] == "error" and refused.body["error"]["message"], refused.body
try:
    anthropic.Anthropic(base_url=base, api_key="wrong", max_retries=0).messages.create(**usual)
    assert key == "none", "a wrong key was let in"
except anthropic.AuthenticationError as refused:
    assert refused.body["error"]["type"] == "authentication_error", refused.body
print("all as Anthropic's client", anthropic.__version__, "expects")
