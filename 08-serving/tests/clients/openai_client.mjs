// OpenAI's own client against `ladder serve`; `run.py` runs it. By hand, after `npm ci` and with the server running:
//
//     node 08-serving/tests/clients/openai_client.mjs http://127.0.0.1:8000/v1 [KEY]

import assert from "node:assert/strict";
import OpenAI from "openai";

const [baseURL, apiKey = "none"] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Who are you?" }];

const whole = await client.chat.completions.create({ model, messages, temperature: 0 });
const text = whole.choices[0].message.content;
assert.equal(whole.choices[0].finish_reason, "stop");

let streamed = "", usage = null;
const stream = await client.chat.completions.create({
  model, messages, temperature: 0, stream: true, stream_options: { include_usage: true },
});
for await (const event of stream) {
  streamed += event.choices[0]?.delta.content ?? "";
  usage = event.usage ?? usage;
}
assert.equal(streamed, text);
assert.equal(usage.total_tokens, whole.usage.total_tokens);

const weather = {
  type: "function",
  function: {
    name: "weather",
    parameters: {
      type: "object", properties: { city: { enum: ["Rome", "Oslo"] } }, required: ["city"], additionalProperties: false,
    },
  },
};
const called = client.chat.completions.stream({ model, messages, tools: [weather], tool_choice: "required" });
const call = (await called.finalChatCompletion()).choices[0].message.tool_calls[0];
assert.equal(call.function.name, "weather");
assert(["Rome", "Oslo"].includes(JSON.parse(call.function.arguments).city));

// The same in the newer words.
const response = await client.responses.create({ model, input: "Who are you?", temperature: 0 });
assert.equal(response.output_text, text);
const summed = client.responses.stream({ model, input: messages, temperature: 0 });
assert.equal((await summed.finalResponse()).output_text, text);

// Embeddings, as the client asks for them (base64) and as numbers.
const input = "a fox in the wood";
const packed = (await client.embeddings.create({ model, input })).data[0].embedding;
const plain = (await client.embeddings.create({ model, input, encoding_format: "float" })).data[0].embedding;
assert.equal(packed.length, plain.length);
assert(packed.every((x, at) => Math.abs(x - plain[at]) < 1e-6));

// A stream that the client breaks off.
const broken = await client.completions.create({ model, prompt: "Once upon a time", max_tokens: 400, stream: true });
for await (const event of broken) {
  assert(event.choices);
  break;
}
await assert.rejects(
  client.chat.completions.create({ model, messages, top_p: 2 }),
  (refused) => refused instanceof OpenAI.BadRequestError && refused.param === "top_p",
);
console.log("all as OpenAI's client for Node expects");
