//! Answers as they come: the same as whole ones, whole characters, no leaked stop string.

use super::server::{STORY, Server, question, with};
use serde_json::{Value, json};
use serving::engine::policy::{Budget, Continuous, Plan, Policy, State};
use serving::engine::{EngineOptions, EngineRequest};
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The texts of a stream's events, for answer 0.
fn texts(events: &[Value]) -> Vec<String> {
    let text = |event: &Value| event["choices"][0]["text"].as_str().map(str::to_owned);
    events.iter().filter_map(text).collect()
}

#[test]
fn a_stream_says_what_a_whole_answer_says() {
    let server = Server::shared();
    for more in [
        json!({"temperature": 0}),
        json!({"seed": 7}),
        json!({"seed": 7, "logprobs": 2, "return_token_ids": true}),
        json!({"seed": 7, "echo": true, "logprobs": 1}),
        json!({"temperature": 0, "stop": ["the", "."]}),
    ] {
        let body = with(json!({"prompt": STORY, "max_tokens": 40}), more);
        let whole = server.complete(body.clone()).json();
        let streamed = server.complete(with(
            body.clone(),
            json!({"stream": true, "stream_options": {"include_usage": true}}),
        ));
        let events = streamed.events();
        let choice = &whole["choices"][0];
        assert_eq!(texts(&events).concat(), choice["text"].as_str().unwrap(), "{body}");
        let (usage, rest) = events.split_last().unwrap();
        // The second time, the prompt is known.
        for key in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            assert_eq!(usage["usage"][key], whole["usage"][key], "{body}");
        }
        assert_eq!(usage["choices"], json!([]));
        let last = &rest.last().unwrap()["choices"][0];
        assert_eq!(last["finish_reason"], choice["finish_reason"]);
        assert_eq!(last["stop_reason"], choice["stop_reason"]);
        let joined = |pointer: &str| -> Vec<Value> {
            let lists = rest.iter().filter_map(|event| event["choices"][0].pointer(pointer));
            lists.flat_map(|list| list.as_array().unwrap().clone()).collect()
        };
        for pointer in
            ["/logprobs/tokens", "/logprobs/token_logprobs", "/logprobs/text_offset", "/token_ids"]
        {
            let expected =
                choice.pointer(pointer).map_or(Vec::new(), |list| list.as_array().unwrap().clone());
            assert_eq!(joined(pointer), expected, "{pointer} of {body}");
        }
    }
}

#[test]
fn a_chat_stream_says_what_a_whole_answer_says() {
    let server = Server::shared();
    let tale = json!([{"role": "user", "content": "Tell me a short story."}]);
    let body = json!({"messages": tale, "seed": 3, "n": 3, "max_tokens": 30, "logprobs": true});
    let whole = server.chat(body.clone()).json();
    let events = server.chat(with(body, json!({"stream": true}))).events();
    for index in 0..3 {
        let mine: Vec<&Value> = (events.iter().map(|event| &event["choices"][0]))
            .filter(|choice| choice["index"] == index)
            .collect();
        assert_eq!(mine[0]["delta"]["role"], "assistant");
        let text: String = mine.iter().filter_map(|c| c["delta"]["content"].as_str()).collect();
        let choice = &whole["choices"][index];
        assert_eq!(text, choice["message"]["content"].as_str().unwrap());
        assert_eq!(mine.last().unwrap()["finish_reason"], choice["finish_reason"]);
        let told: usize =
            mine.iter().filter_map(|c| Some(c["logprobs"]["content"].as_array()?.len())).sum();
        assert_eq!(told, choice["logprobs"]["content"].as_array().unwrap().len());
    }
    let contents: Vec<&Value> =
        (0..3).map(|index| &whole["choices"][index]["message"]["content"]).collect();
    assert!(contents[0] != contents[1] || contents[1] != contents[2], "all three are the same");
    let ids: Vec<&Value> = events.iter().map(|event| &event["id"]).collect();
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]));
}

/// Letters that take several of the embedded vocabulary's tokens each.
const WIDE: &str = "🦊 狐狸 naïve – ½ 👩‍👩‍👧 é";

#[test]
fn characters_in_several_tokens_come_whole() {
    let server = Server::shared();
    let body = json!({
        "prompt": STORY, "max_tokens": 200, "structured_outputs": {"choice": [WIDE]},
        "stream": true, "return_token_ids": true,
    });
    let events = server.complete(body).events();
    let texts = texts(&events);
    assert_eq!(texts.concat(), WIDE);
    assert!(texts.iter().all(|text| !text.contains('\u{FFFD}')), "{texts:?}");
    let tokens: usize =
        events.iter().filter_map(|e| Some(e["choices"][0]["token_ids"].as_array()?.len())).sum();
    assert!(tokens > WIDE.chars().count(), "{tokens} tokens: no character was in several");
}

#[test]
fn a_stop_string_ends_the_text_wherever_tokens_cut_it() {
    let server = Server::shared();
    let body = json!({"prompt": STORY, "max_tokens": 40, "temperature": 0});
    let whole = server.text(body.clone());
    let letters: Vec<(usize, char)> = whole.char_indices().collect();
    assert!(letters.len() > 60, "{whole}");
    for from in (0..letters.len() - 7).step_by(3) {
        let stop: String = letters[from..from + 6].iter().map(|(_, letter)| letter).collect();
        let at = whole.find(&stop).unwrap();
        for included in [false, true] {
            let more =
                json!({"stop": stop, "include_stop_str_in_output": included, "stream": true});
            let events = server.complete(with(body.clone(), more)).events();
            let expected = &whole[..if included { at + stop.len() } else { at }];
            assert_eq!(texts(&events).concat(), expected, "{stop:?}");
            let last = &events.last().unwrap()["choices"][0];
            assert_eq!(last["finish_reason"], "stop");
            assert_eq!(last["stop_reason"], stop.as_str());
        }
    }
}

#[test]
fn a_stop_string_may_begin_before_the_tokens_that_there_are_to_be_at_least() {
    let server = Server::shared();
    let body = json!({"prompt": STORY, "max_tokens": 40, "temperature": 0, "logprobs": 0});
    let whole = server.complete(body.clone()).json()["choices"][0].clone();
    let letters: Vec<char> = whole["text"].as_str().unwrap().chars().collect();
    let offsets = whole["logprobs"]["text_offset"].as_array().unwrap();
    for least in (5..30).step_by(3) {
        // From before the first token that may end the text into that.
        let edge = offsets[least - 1].as_u64().unwrap() as usize;
        let stop = &letters[edge - 3..edge + 1];
        let ends = |&at: &usize| letters[..at].ends_with(stop);
        let end = (edge + 1..=letters.len()).find(ends).unwrap();
        let more = json!({"stop": stop.iter().collect::<String>(), "min_tokens": least});
        let choice = server.complete(with(body.clone(), more)).json()["choices"][0].clone();
        let expected: String = letters[..end - stop.len()].iter().collect();
        assert_eq!(choice["text"], expected, "{stop:?}, {least} tokens");
        assert_eq!(choice["finish_reason"], "stop");
    }
}

#[test]
fn the_beginning_of_a_stop_string_that_does_not_come_is_sent() {
    let server = Server::shared();
    let body = json!({"prompt": STORY, "max_tokens": 20, "temperature": 0});
    let whole = server.text(body.clone());
    for letters in 1..6 {
        let at = whole.char_indices().rev().nth(letters - 1).unwrap().0;
        let stop = format!("{}\u{1}", &whole[at..]);
        let answer = server.complete(with(body.clone(), json!({"stop": stop}))).json();
        assert_eq!(answer["choices"][0]["text"], whole, "{stop:?}");
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
    }
}

#[test]
fn log_probabilities_do_not_tell_what_a_stop_string_hides() {
    let server = Server::shared();
    let body = json!({"prompt": STORY, "max_tokens": 40, "temperature": 0, "logprobs": 0});
    let whole = server.text(body.clone());
    for from in (10..40).step_by(4) {
        let stop: String = whole.chars().skip(from).take(6).collect();
        let choice = server.complete(with(body.clone(), json!({"stop": stop}))).json();
        let choice = choice["choices"][0].clone();
        let letters = choice["text"].as_str().unwrap().chars().count();
        let offsets = choice["logprobs"]["text_offset"].as_array().unwrap();
        assert!(!offsets.is_empty());
        let before = |offset: &Value| offset.as_u64().unwrap() < letters as u64;
        assert!(offsets.iter().all(before), "{stop:?}: {choice}");
    }
}

/// As in vLLM: whoever trains on an answer needs the token that ended it.
#[test]
fn all_tokens_that_were_generated_are_told_by_their_ids() {
    let server = Server::shared();
    let free = json!({"temperature": 0, "max_tokens": 120, "return_token_ids": true});
    let whole = server.complete(with(json!({"prompt": STORY}), free.clone())).json();
    let text = whole["choices"][0]["text"].as_str().unwrap();
    let stop: String = text.chars().skip(20).take(6).collect();
    let stopped = with(json!({"prompt": STORY, "stop": stop}), free.clone());
    let included = with(stopped.clone(), json!({"include_stop_str_in_output": true}));
    let asked = with(json!({"messages": question()}), free);
    for (path, body) in [
        ("/v1/completions", stopped),
        ("/v1/completions", included),
        ("/v1/chat/completions", asked),
    ] {
        let answer = server.post(path, &body).json();
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "stop", "{answer}");
        let told = choice["token_ids"].as_array().unwrap();
        assert_eq!(told.len() as u64, answer["usage"]["completion_tokens"].as_u64().unwrap());
        if path == "/v1/completions" {
            assert_eq!(
                told[..],
                whole["choices"][0]["token_ids"].as_array().unwrap()[..told.len()]
            );
        } else {
            let end = server.post("/detokenize", &json!({"tokens": [told.last()]})).json();
            assert_eq!(end["prompt"], "<|end|>");
        }
        let events = server.post(path, &with(body, json!({"stream": true}))).events();
        let streamed = events.iter().filter_map(|e| e["choices"][0]["token_ids"].as_array());
        assert_eq!(streamed.flatten().collect::<Vec<_>>(), told.iter().collect::<Vec<_>>());
    }
}

#[test]
fn every_event_tells_what_the_answers_have_come_to_so_far() {
    let server = Server::shared();
    let tale = json!([{"role": "user", "content": "Tell me a short story."}]);
    let more = json!({
        "n": 2, "seed": 3, "max_tokens": 20, "ignore_eos": true, "stream": true,
        "stream_options": {"continuous_usage_stats": true},
    });
    for events in [
        server.complete(with(json!({"prompt": STORY}), more.clone())).events(),
        server.chat(with(json!({"messages": tale}), more.clone())).events(),
    ] {
        let all = |name: &str| -> Vec<u64> {
            events.iter().map(|event| event["usage"][name].as_u64().unwrap()).collect()
        };
        let (prompt, written) = (all("prompt_tokens"), all("completion_tokens"));
        assert!(prompt[0] > 0 && prompt.iter().all(|tokens| *tokens == prompt[0]), "{prompt:?}");
        assert!(written.is_sorted() && written[0] <= 2, "{written:?}");
        // By the middle many are there already.
        assert!(written[events.len() / 2] >= 10 && written.ends_with(&[40]), "{written:?}");
        for (i, total) in all("total_tokens").into_iter().enumerate() {
            assert_eq!(total, prompt[i] + written[i]);
        }
    }
}

#[test]
fn usage_is_told_where_it_is_asked_for_and_nowhere_else() {
    let server = Server::shared();
    for (options, every, last) in [
        (json!({}), false, false),
        (json!({"include_usage": true}), false, true),
        (json!({"continuous_usage_stats": true}), true, true),
        (json!({"include_usage": true, "continuous_usage_stats": true}), true, true),
        (json!({"include_usage": false, "continuous_usage_stats": true}), false, false),
    ] {
        let body =
            json!({"prompt": STORY, "max_tokens": 2, "stream": true, "stream_options": options});
        let events = server.complete(body).events();
        let (ends, pieces): (Vec<_>, Vec<_>) =
            events.iter().partition(|event| event["choices"] == json!([]));
        assert_eq!(ends.len(), usize::from(last), "{options}: {events:?}");
        assert!(ends.iter().all(|event| event["usage"].is_object()), "{options}: {ends:?}");
        let told = |event: &&Value| event["usage"].is_object() == every;
        assert!(!pieces.is_empty() && pieces.iter().all(told), "{options}: {pieces:?}");
    }
}

/// Lets nothing run until it is opened.
#[derive(Default)]
struct Gate(AtomicBool);

impl Policy for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn schedule(&self, state: &State, budget: Budget) -> Plan {
        match self.0.load(Ordering::Relaxed) {
            true => Continuous.schedule(state, budget),
            false => Plan::default(),
        }
    }
}

/// A server behind a gate.
fn gated(answer_in: Option<Duration>) -> (Server, Arc<Gate>) {
    let gate = Arc::<Gate>::default();
    let policy = gate.clone();
    let change = move |options: &mut EngineOptions| options.policy = policy;
    (Server::start_with(change, |app| app.with_answers_in(answer_in)), gate)
}

/// Clients take the first event for the first token.
#[test]
fn a_stream_says_nothing_before_its_first_token() {
    let (server, gate) = gated(None);
    let asks = [
        ("/v1/completions", json!({"prompt": STORY, "echo": true})),
        ("/v1/chat/completions", json!({"messages": question(), "n": 2})),
    ];
    let mut streams = asks.map(|(path, body)| {
        let more = json!({"stream": true, "max_tokens": 3, "ignore_eos": true});
        server.send(path, &with(body, more))
    });
    server.wait_until("all wait", |server| server.engine.state().waiting == 3);
    for stream in &mut streams {
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(stream.read(&mut [0; 1]).is_err(), "something is said of what nobody computes");
    }
    gate.0.store(true, Ordering::Relaxed);
    // The engine looks up when somebody comes.
    drop(server.engine.submit(EngineRequest::new(vec![5], 1)).unwrap());
    let [completions, chat] = streams.map(|stream| {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let lines = BufReader::new(stream).lines().map(Result::unwrap);
        let data = lines.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
        let events = data.take_while(|data| data != "[DONE]");
        events.map(|data| serde_json::from_str(&data).unwrap()).collect::<Vec<Value>>()
    });
    assert_eq!(completions[0]["choices"][0]["text"], STORY);
    assert_eq!(completions.last().unwrap()["choices"][0]["finish_reason"], "length");
    for (index, event) in chat.iter().take(2).enumerate() {
        let choice = &event["choices"][0];
        assert_eq!(choice["index"], index);
        assert_eq!(choice["delta"], json!({"role": "assistant", "content": ""}));
    }
    assert_eq!(chat.last().unwrap()["choices"][0]["finish_reason"], "length");
}

#[test]
fn a_stream_of_which_nothing_came_is_refused_as_a_whole_answer_is() {
    let (server, _gate) = gated(Some(Duration::from_millis(50)));
    for stream in [false, true] {
        for n in [1, 2] {
            let more = json!({"stream": stream, "n": n});
            let completion = json!({"prompt": STORY, "echo": true});
            let chat = json!({"messages": question()});
            for refused in [
                server.complete(with(completion, more.clone())),
                server.chat(with(chat, more.clone())),
            ] {
                let message = refused.is_refused(503, None);
                assert!(message.contains("in the time that an answer may take"), "{message}");
            }
        }
    }
}

#[test]
fn a_stream_of_nothing_but_prompts_has_an_end() {
    let server = Server::shared();
    let body = json!({"prompt": STORY, "max_tokens": 0, "echo": true, "n": 2, "stream": true});
    let events = server.complete(body).events();
    for index in 0..2 {
        let choices = events.iter().map(|event| &event["choices"][0]);
        let mine: Vec<&Value> = choices.filter(|choice| choice["index"] == index).collect();
        assert_eq!(mine[0]["text"], STORY);
        assert_eq!(mine.last().unwrap()["finish_reason"], "length");
    }
}
