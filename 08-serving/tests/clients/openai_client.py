"""OpenAI's own client against `ladder serve`; `run.py` runs it. By hand, with openai installed and the server running:

    python 08-serving/tests/clients/openai_client.py http://127.0.0.1:8000/v1 [KEY]
"""

import json
import sys

import openai
import pydantic

base, key = sys.argv[1], (sys.argv[2:] or ["none"])[0]
client = openai.OpenAI(base_url=base, api_key=key, max_retries=0)
model = client.models.list().data[0].id
asked = [{"role": "user", "content": "Who are you?"}]

# A chat, whole and streamed: the same text.
whole = client.chat.completions.create(model=model, messages=asked, temperature=0, logprobs=True, top_logprobs=2)
text = whole.choices[0].message.content
assert text and whole.choices[0].finish_reason == "stop", whole
assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
assert whole._request_id.startswith("req_"), whole._request_id
assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
stream = client.chat.completions.create(
    model=model, messages=asked, temperature=0, stream=True, stream_options={"include_usage": True})
events = list(stream)
assert "".join(e.choices[0].delta.content or "" for e in events if e.choices) == text
assert events[-1].usage.completion_tokens == whole.usage.completion_tokens

# The client's own accumulation of a stream.
with client.chat.completions.stream(model=model, messages=asked, temperature=0) as stream:
    assert stream.get_final_completion().choices[0].message.content == text

# A completion with echo and log-probabilities.
done = client.completions.create(model=model, prompt="Once upon a time", max_tokens=5, echo=True, logprobs=1)
assert done.choices[0].text.startswith("Once upon a time")
assert done.choices[0].logprobs.token_logprobs[0] is None

# A function that must be called, and an answer of a form.
weather = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
    "additionalProperties": False}}}
called = client.chat.completions.create(model=model, messages=asked, tools=[weather], tool_choice="required")
call = called.choices[0].message.tool_calls[0]
assert called.choices[0].finish_reason == "tool_calls" and call.function.name == "weather"
assert json.loads(call.function.arguments)["city"] in ["Rome", "Oslo"]
schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
formed = client.chat.completions.create(model=model, messages=asked, response_format={
    "type": "json_schema", "json_schema": {"name": "ok", "schema": schema, "strict": True}})
assert isinstance(json.loads(formed.choices[0].message.content)["ok"], bool)

# The same in the newer words: whole, streamed, and as the client adds a stream up.
response = client.responses.create(model=model, input="Who are you?", temperature=0)
assert response.output_text == text and response.status == "completed", response
assert response.usage.total_tokens == whole.usage.total_tokens
events = list(client.responses.create(model=model, input=asked, temperature=0, stream=True))
assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == text
assert events[-1].type == "response.completed" and events[-1].response.output_text == text
with client.responses.stream(model=model, input=asked, temperature=0) as stream:
    assert stream.get_final_response().output_text == text

# A call, and what comes of it.
tool = {"type": "function", "strict": True, **weather["function"]}
response = client.responses.create(model=model, input=asked, tools=[tool], tool_choice="required")
call = response.output[0]
assert call.type == "function_call" and json.loads(call.arguments)["city"] in ["Rome", "Oslo"], call
given = {"type": "function_call_output", "call_id": call.call_id, "output": "It rains."}
response = client.responses.create(
    model=model, input=[*asked, *response.output, given], tools=[tool], max_output_tokens=5)
assert response.output and response.usage.output_tokens <= 5, response


class Ok(pydantic.BaseModel):
    """An answer of a form."""

    ok: bool


assert isinstance(client.responses.parse(model=model, input=asked, text_format=Ok).output_parsed, Ok)
assert client.responses.create(model=model, input=asked, max_output_tokens=1).incomplete_details.reason == "max_output_tokens"

# Embeddings, as the client asks for them (base64) and as numbers.
inputs = ["a fox in the wood", "a clock at the mill"]
packed = client.embeddings.create(model=model, input=inputs)
plain = client.embeddings.create(model=model, input=inputs, encoding_format="float")
assert [e.index for e in packed.data] == [0, 1] and packed.usage.total_tokens == packed.usage.prompt_tokens > 0
for one, other in zip(packed.data, plain.data, strict=True):
    assert all(abs(a - b) < 1e-6 for a, b in zip(one.embedding, other.embedding, strict=True))
    assert abs(sum(x * x for x in one.embedding) - 1) < 1e-5

# Extensions, and refusals as the client knows them.
salted = client.completions.create(model=model, prompt="a", max_tokens=3, extra_body={"top_k": 5, "cache_salt": "x"})
assert salted.choices[0].finish_reason in ["length", "stop"]
for wrong, param in [({"temperature": -1}, "temperature"), ({"n": 10**9}, "n")]:
    try:
        client.chat.completions.create(model=model, messages=asked, **wrong)
        raise SystemExit(f"{wrong} was not refused")
    except openai.BadRequestError as refused:
        assert refused.param == param, refused
try:
    client.chat.completions.create(model="nothing", messages=asked)
    raise SystemExit("a model that is not there was not refused")
except openai.NotFoundError as refused:
    assert refused.code == "model_not_found", refused
print("all as OpenAI's client", openai.__version__, "expects")
