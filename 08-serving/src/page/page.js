"use strict";
// The page of `ladder serve`: a chat over the public API, and the engine's state as it runs.
// Texts are only ever set as text, so nothing that a model says can become part of the page.

const by = (id) => document.getElementById(id);
// An address beside the page's, without the user and key that the page's own may have in it: nothing is fetched from such.
const beside = (path) => new URL(path, location.origin + location.pathname);

// --- chat ---

// A new conversation is a new list: an answer that is still under way then belongs to one that nobody sees any more.
let messages = [];
let running = null;

// Changes the log. Whoever was at its end is at its end again; whoever reads further up stays there. Nothing but the log
// is scrolled: elsewhere on the page somebody may be looking at the engine.
function write(change) {
  const log = by("log");
  // Heights are rounded, and what is scrolled is not.
  const follows = log.scrollHeight - log.clientHeight - log.scrollTop < 2;
  change();
  if (follows) log.scrollTop = log.scrollHeight;
}

function turn(role, text) {
  const element = document.createElement("div");
  element.className = "turn " + role;
  element.textContent = text;
  write(() => {
    by("log").querySelector(".hint")?.remove();
    by("log").append(element);
  });
  return element;
}

// Writes an answer as it comes: at most once a frame, as each time the log is laid out anew, and only at its end, so that
// a screen reader does not read again what is there.
function writer(element) {
  // What the model thinks is shown above what it says, and is not sent back.
  const above = document.createElement("i"), below = document.createElement("span");
  const thoughts = new Text(), said = new Text();
  above.append(thoughts);
  below.append(said);
  let thought = "", content = "", frame = 0;
  function flush() {
    cancelAnimationFrame(frame);
    frame = 0;
    if (!thought && !content) return;
    write(() => {
      if (!below.parentNode) element.append(above, below);
      thoughts.appendData(thought);
      if (content && thoughts.length && !said.length) said.appendData("\n\n");
      said.appendData(content);
    });
    thought = content = "";
  }
  function add(more) {
    thought += more.thought;
    content += more.content;
    frame ||= requestAnimationFrame(flush);
  }
  return { add, flush };
}

// What each parameter has to be.
const RIGHT = {
  temperature: "a number, such as 0.7",
  tokens: "a whole number, such as 100",
  seed: `a whole number from ${Number.MIN_SAFE_INTEGER} to ${Number.MAX_SAFE_INTEGER}`,
};

// What is wrong with a parameter that would be left out or changed without a word: of what is no number the browser gives
// nothing, and JavaScript rounds big ones. All else is for the server to refuse.
function misread() {
  const wrong = Object.keys(RIGHT).find((id) => by(id).validity.badInput)
    ?? (Number.isSafeInteger(Number(by("seed").value)) ? null : "seed");
  return wrong && `${by(wrong).labels[0].textContent.trim()}: expected ${RIGHT[wrong]}`;
}

function request() {
  const system = by("system").value.trim();
  const body = {
    messages: system ? [{ role: "system", content: system }, ...messages] : [...messages],
    stream: true,
    stream_options: { include_usage: true },
  };
  // What is not filled in is the model's own, or the server's.
  if (by("temperature").value) body.temperature = Number(by("temperature").value);
  if (by("tokens").value) body.max_tokens = Number(by("tokens").value);
  if (by("seed").value) body.seed = Number(by("seed").value);
  return body;
}

// The data of each server-sent event in a response's body. What ends without saying so was cut off.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the answer ended in its middle");
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "data: [DONE]") return;
      if (line.startsWith("data: ")) yield line.slice(6);
    }
  }
}

// Whoever is at a button that is disabled would be nowhere, and begin at the page's top again. Nothing is scrolled: they
// may be looking elsewhere.
function disable(button) {
  if (document.activeElement === button) by("said").focus({ preventScroll: true });
  button.disabled = true;
}

function work() {
  running = new AbortController();
  disable(by("send"));
  by("stop").disabled = false;
  by("log").setAttribute("aria-busy", "true");
}

function rest() {
  running = null;
  by("send").disabled = false;
  disable(by("stop"));
  by("log").setAttribute("aria-busy", "false");
}

// Why a response is none. It need not be the server's: a proxy before it says it otherwise.
async function refusal(response) {
  const told = await response.json().catch(() => null);
  return new Error(told?.error?.message ?? `${response.status} ${response.statusText}`);
}

async function answer() {
  const conversation = messages;
  work();
  const begun = performance.now();
  const element = turn("assistant", "");
  const { add, flush } = writer(element);
  let text = "", first = null, usage = null, end = "", problem = null;
  try {
    const response = await fetch(beside("v1/chat/completions"), {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(request()),
      signal: running.signal,
    });
    if (!response.ok) throw await refusal(response);
    for await (const data of events(response)) {
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      usage = event.usage ?? usage;
      const choice = event.choices[0];
      const { reasoning_content: thought = "", content = "" } = choice?.delta ?? {};
      if (thought || content) {
        first ??= performance.now() - begun;
        text += content;
        add({ thought, content });
      }
      end = choice?.finish_reason ?? end;
    }
  } catch (thrown) {
    problem = thrown;
  }
  // No frame may come: a tab that is hidden has none.
  flush();
  if (conversation !== messages) return;
  rest();
  if (problem?.name === "AbortError") {
    end = "stopped";
  } else if (problem) {
    turn("wrong", problem.message);
    end = "failed";
  }
  if (text) {
    messages.push({ role: "assistant", content: text });
  } else {
    // What was not answered was not said: it can be sent again.
    const unsaid = messages.pop().content;
    by("said").value ||= unsaid;
    if (end === "failed" && first === null) {
      element.remove();
      return;
    }
  }
  const note = document.createElement("small");
  const parts = [];
  if (usage) parts.push(`${usage.prompt_tokens} tokens in, ${usage.completion_tokens} out`);
  if (usage?.prompt_tokens_details.cached_tokens) parts.push(`${usage.prompt_tokens_details.cached_tokens} cached`);
  if (first !== null) parts.push(`first text after ${first.toFixed(0)} ms`);
  if (end && end !== "stop") parts.push(end);
  note.textContent = parts.join(", ");
  write(() => element.append(note));
}

function send() {
  const said = by("said").value.trim();
  if (!said || running) return;
  // Whoever says something wants to see what is answered.
  by("log").scrollTop = by("log").scrollHeight;
  const wrong = misread();
  if (wrong) {
    turn("wrong", wrong);
    return;
  }
  by("said").value = "";
  messages.push({ role: "user", content: said });
  turn("user", said);
  answer();
}

by("form").addEventListener("submit", (event) => { event.preventDefault(); send(); });
by("said").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
by("stop").addEventListener("click", () => running?.abort());
document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });
by("new").addEventListener("click", () => {
  running?.abort();
  rest();
  messages = [];
  by("log").replaceChildren();
  by("said").focus();
});

// --- engine ---

const median = (list) => list.length ? [...list].sort((a, b) => a - b)[list.length >> 1] : null;
const ms = (time) => time === null ? "–" : time < 10 ? `${time.toFixed(2)} ms`
  : time < 10_000 ? `${time.toFixed(0)} ms` : `${(time / 1e3).toFixed(1)} s`;
const share = (part, whole) => whole ? `${(100 * part / whole).toFixed(0)} %` : "–";

function shape(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  return element;
}

function chart(svg, times, what) {
  const most = Math.max(...times, 0.001);
  svg.setAttribute("viewBox", "0 0 60 10");
  svg.setAttribute("preserveAspectRatio", "none");
  const told = `${what} of the last requests` + (times.length ? `: up to ${ms(most)}` : "");
  svg.previousElementSibling.textContent = told;
  svg.setAttribute("aria-label", told);
  svg.replaceChildren(...times.map((time, at) => {
    const height = 10 * time / most;
    return shape("rect", { x: at, y: 10 - height, width: 0.8, height });
  }));
}

// One bar a pass, the last one at the right. Prompts have a scale of their own: one chunk has more rows than all texts.
const PASSES = 96, LEAST = 8, MARK = 8;
const TRACKS = [
  { kinds: ["prefill"], of: "rows of prompts" },
  { kinds: ["decode", "draft"], of: "of texts and guesses" },
  { kinds: ["tokens"], of: "tokens" },
];

function timeline(passes) {
  const svg = by("passes"), width = svg.clientWidth, height = svg.clientHeight, step = width / PASSES;
  const count = (pass, kind) => kind === "tokens" ? pass.tokens : pass[kind + "_rows"];
  const most = TRACKS.map(({ kinds }) =>
    Math.max(0, ...passes.map((pass) => kinds.reduce((sum, kind) => sum + count(pass, kind), 0))));
  const track = (height - MARK) / TRACKS.length;
  const parts = passes.map((pass, at) => {
    const x = (PASSES - passes.length + at) * step, group = shape("g", {});
    TRACKS.forEach(({ kinds }, number) => {
      let y = MARK + (number + 1) * track;
      for (const kind of kinds) {
        const size = (track - 3) * count(pass, kind) / Math.max(LEAST, most[number]);
        y -= size;
        if (size) group.append(shape("rect", { class: kind, x, y, width: Math.max(step - 1, 1), height: size }));
      }
    });
    if (pass.preempted) {
      const middle = x + step / 2;
      group.append(shape("path", { class: "preempted", d: `M${middle - 4} 0h8l-4 ${MARK - 1}z` }));
    }
    const title = shape("title", {});
    title.textContent = `${pass.prefill_rows} rows of prompts, ${pass.decode_rows} of texts, ${pass.draft_rows} of guesses; `
      + `${pass.tokens} tokens in ${ms(pass.duration * 1e3)}; ${pass.preempted} gave up a place`;
    group.append(title);
    return group;
  });
  const axes = TRACKS.map((_, number) => `M0 ${Math.round(MARK + (number + 1) * track) - 0.5}h${width}`);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(...parts, shape("path", { class: "axis", d: axes.join("") }));
  const first = passes[0], end = passes.at(-1), gone = passes.reduce((sum, pass) => sum + pass.preempted, 0);
  by("passes-told").textContent = passes.length
    ? `The last ${passes.length}, ${ms((end.start + end.duration - first.start) * 1e3)}: up to `
      + TRACKS.map(({ of }, number) => `${most[number]} ${of}`).join(", ")
      + `; ${gone} ${gone === 1 ? "preemption" : "preemptions"}`
    : "None yet";
}

function cells(state) {
  const canvas = by("cells");
  // There may be too many to draw.
  canvas.hidden = !state.cells.length;
  if (canvas.hidden) return;
  const style = getComputedStyle(document.documentElement);
  const colours = Object.fromEntries(
    ["used", "shared", "cached", "free"].map((name) => [name, style.getPropertyValue("--" + name)]));
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const side = state.cells.length > 2000 ? 6 : 10;
  const columns = Math.max(1, Math.floor(width / side));
  const rows = Math.max(1, Math.ceil(state.cells.length / columns));
  canvas.width = width * scale;
  canvas.height = rows * side * scale;
  canvas.style.height = `${rows * side}px`;
  const paint = canvas.getContext("2d");
  paint.scale(scale, scale);
  state.cells.forEach((cell, at) => {
    paint.fillStyle = colours[cell];
    paint.fillRect((at % columns) * side, Math.floor(at / columns) * side, side - 1, side - 1);
  });
  const { total, free, cached } = state.blocks;
  canvas.setAttribute("aria-label",
    `${total} blocks: ${total - free - cached} used, ${cached} in the prefix cache, ${free} free`);
}

function row(values) {
  const element = document.createElement("tr");
  for (const value of values) {
    element.insertCell().textContent = value;
  }
  return element;
}

function branch(node) {
  const element = document.createElement("li");
  element.style.marginLeft = `${Math.min(node.depth, 20) * 0.8}rem`;
  element.textContent = `${node.tokens} tokens in ${node.blocks.length} ${node.blocks.length === 1 ? "block" : "blocks"}`;
  return element;
}

function show(state) {
  const { blocks, counters, recent, passes } = state;
  by("model").textContent = state.model;
  by("running").textContent = state.running;
  by("waiting").textContent = state.waiting;
  by("ttft").textContent = ms(median(recent.ttft_ms));
  by("tpot").textContent = ms(median(recent.tpot_ms));
  by("hits").textContent = share(counters.prefix_hits, counters.prefix_queries);
  by("accepted").textContent = share(counters.accepted_tokens, counters.drafted_tokens);
  by("preemptions").textContent = counters.preemptions;
  const pass = passes.at(-1);
  const rows = pass && pass.prefill_rows + pass.decode_rows + pass.draft_rows;
  by("pass").textContent = pass ? `${rows} ${rows === 1 ? "row" : "rows"}, ${ms(pass.duration * 1e3)}` : "–";
  by("used").textContent = blocks.total - blocks.free - blocks.cached - blocks.shared;
  by("shared").textContent = blocks.shared;
  by("cached").textContent = blocks.cached;
  by("free").textContent = blocks.free;
  chart(by("ttft-chart"), recent.ttft_ms, "TTFT");
  chart(by("tpot-chart"), recent.tpot_ms, "TPOT");
  timeline(passes);
  cells(state);
  by("requests").replaceChildren(...state.requests.slice(0, 100).map((of) => row([
    of.id, of.stage, of.prompt_tokens, of.cached_tokens, `${of.generated_tokens}/${of.max_tokens}`, of.blocks.length,
  ])));
  by("tree").replaceChildren(...state.prefixes.slice(0, 200).map(branch));
}

let last = null, stream = null, again = 0;
// A browser has six connections to a server, all its tabs together, and a stream keeps one. Only tabs that are seen have
// theirs: six that do not need them would leave none to chat by.
function watch() {
  stream?.close();
  clearTimeout(again);
  if (document.hidden) return;
  stream = new EventSource(beside("state"));
  stream.onmessage = (event) => {
    last = JSON.parse(event.data);
    by("link").textContent = last.draining ? "shutting down" : "connected";
    by("link").className = "";
    show(last);
  };
  stream.onerror = () => {
    // One that said that it shuts down is not lost.
    if (!last?.draining) {
      by("link").textContent = "connection lost, trying again";
      by("link").className = "lost";
    }
    // After an answer that is no stream, such as a proxy's while the server starts, the browser does not try again.
    if (stream.readyState === EventSource.CLOSED) again = setTimeout(watch, 3000);
  };
}
watch();
document.addEventListener("visibilitychange", watch);
new ResizeObserver(() => last && show(last)).observe(by("engine"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => last && cells(last));
