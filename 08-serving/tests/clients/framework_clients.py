"""What people build on OpenAI's API, against `ladder serve`: LangChain and LiteLLM; `run.py` runs it. By hand, with
langchain-openai and litellm installed and the server running:

    python 08-serving/tests/clients/framework_clients.py http://127.0.0.1:8000/v1 [KEY]
"""

import os
import sys
from typing import Literal

# Prices are not asked of the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from openai import OpenAI
from pydantic import BaseModel

base, key = sys.argv[1], (sys.argv[2:] or ["none"])[0]
model = OpenAI(base_url=base, api_key=key).models.list().data[0].id
question = "Who are you?"

# LangChain: whole, in pieces, and several at once.
chat = ChatOpenAI(model=model, base_url=base, api_key=key, temperature=0, max_retries=0)
whole = chat.invoke(question)
assert whole.content and whole.usage_metadata["output_tokens"] > 0, whole
pieces = list(chat.stream(question))
assert len(pieces) > 3 and "".join(piece.content for piece in pieces) == whole.content, pieces
assert [answer.content for answer in chat.batch([question] * 3)] == [whole.content] * 3


# A function that has to be called, and the conversation after it.
@tool
def weather(city: Literal["Rome", "Oslo"]) -> str:
    """The weather in a city."""
    return f"It rains in {city}."


asked = [HumanMessage(question)]
called = chat.bind_tools([weather], tool_choice="weather").invoke(asked)
call = called.tool_calls[0]
assert call["name"] == "weather" and call["args"]["city"] in ["Rome", "Oslo"], called
answered = chat.bind_tools([weather]).invoke([*asked, called, ToolMessage("It rains.", tool_call_id=call["id"])])
assert answered.content or answered.tool_calls, answered


class Verdict(BaseModel):
    """An answer of a form."""

    good: bool


for method in ["json_schema", "function_calling"]:
    verdict = chat.with_structured_output(Verdict, method=method).invoke(question)
    assert isinstance(verdict, Verdict), (method, verdict)

# In the newer words.
newer = ChatOpenAI(
    model=model, base_url=base, api_key=key, temperature=0, max_retries=0, use_responses_api=True)
assert newer.invoke(question).text == whole.content
assert "".join(piece.text for piece in newer.stream(question)) == whole.content
called = newer.bind_tools([weather], tool_choice="weather").invoke(asked)
call = called.tool_calls[0]
assert call["name"] == "weather" and call["args"]["city"] in ["Rome", "Oslo"], called
answered = newer.bind_tools([weather]).invoke([*asked, called, ToolMessage("It rains.", tool_call_id=call["id"])])
assert answered.content or answered.tool_calls, answered

# The length of texts is the server's to judge: LangChain would count them in tokens of another model.
embeddings = OpenAIEmbeddings(model=model, base_url=base, api_key=key, check_embedding_ctx_length=False, max_retries=0)
near, far = embeddings.embed_documents(["a fox in the wood", "a clock at the mill"])
assert len(near) == len(far) and embeddings.embed_query("a fox in the wood") == near

# LiteLLM: the same server under its own name for servers of this kind.
at = {"model": f"hosted_vllm/{model}", "api_base": base, "api_key": key, "num_retries": 0}
messages = [{"role": "user", "content": question}]
answer = litellm.completion(messages=messages, temperature=0, **at)
assert answer.choices[0].message.content == whole.content, answer
streamed = litellm.completion(
    messages=messages, temperature=0, stream=True, stream_options={"include_usage": True}, **at)
rebuilt = litellm.stream_chunk_builder(list(streamed), messages=messages)
assert rebuilt.choices[0].message.content == whole.content, rebuilt
assert rebuilt.usage.completion_tokens == answer.usage.completion_tokens, rebuilt
at["model"] = f"openai/{model}"
embedded = litellm.embedding(input=["a fox in the wood"], encoding_format="float", **at)
assert max(abs(a - b) for a, b in zip(embedded.data[0]["embedding"], near, strict=True)) < 1e-6
try:
    litellm.completion(messages=messages, top_p=7, **at)
    raise SystemExit("top_p of 7 was not refused")
except litellm.BadRequestError as refused:
    assert "top_p" in str(refused), refused
print("all as LangChain and LiteLLM expect")
