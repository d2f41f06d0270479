//! How likely a prompt was, in vLLM's form.

use super::server::{STORY, Server, question};
use serde_json::{Value, json};

/// Tokens of a prompt, and what was told of each: its log-probability, its rank, and those of others.
#[track_caller]
fn check(server: &Server, told: &Value, tokens: &Value, most: usize) {
    let (told, tokens) = (told.as_array().unwrap(), tokens.as_array().unwrap());
    assert_eq!(told.len(), tokens.len());
    assert!(told[0].is_null(), "{told:?}");
    let mut surprising = 0;
    for (place, token) in told.iter().zip(tokens).skip(1) {
        let place = place.as_object().unwrap();
        let own = &place[&token.to_string()];
        let rank = |told: &Value| told["rank"].as_u64().unwrap() as usize;
        let logprob = |told: &Value| told["logprob"].as_f64().unwrap();
        // Itself, and the likeliest: itself is among those, or is one more.
        assert_eq!(
            place.len(),
            if rank(own) <= most { most.max(1) } else { most + 1 },
            "{place:?}"
        );
        surprising += usize::from(rank(own) > most);
        let mut by_rank: Vec<&Value> = place.values().collect();
        by_rank.sort_by_key(|told| rank(told));
        assert!(by_rank.is_sorted_by(|a, b| logprob(a) >= logprob(b)), "{place:?}");
        let ranks = by_rank.iter().filter(|told| rank(told) <= most).map(|told| rank(told));
        assert!(ranks.eq(1..=most), "{place:?}");
        for (token, told) in place {
            let text =
                server.post("/detokenize", &json!({"tokens": [token.parse::<u32>().unwrap()]}));
            assert_eq!(told["decoded_token"], text.json()["prompt"]);
        }
    }
    assert!(surprising > 0, "every token was likely: {told:?}");
}

#[test]
fn a_completion_tells_how_likely_its_prompts_were() {
    let server = Server::shared();
    let ask = |more: Value| {
        let mut body =
            json!({"prompt": [STORY, "The dog and"], "max_tokens": 3, "n": 2, "seed": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = server.complete(body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["choices"].clone()
    };
    for most in [0, 3] {
        let choices = ask(json!({"prompt_logprobs": most}));
        for (index, prompt) in [STORY, STORY, "The dog and", "The dog and"].iter().enumerate() {
            let tokens =
                server.post("/tokenize", &json!({"prompt": prompt})).json()["tokens"].clone();
            let choice = &choices[index];
            check(server, &choice["prompt_logprobs"], &tokens, most);
            assert!(choice["logprobs"].is_null(), "nobody asked for the answer's: {choice}");
            assert!(!choice["text"].as_str().unwrap().starts_with(*prompt));
        }
    }
    // An echo says the same in OpenAI's form, each with as many as were asked for.
    let (told, least) =
        (ask(json!({"prompt_logprobs": 2})), ask(json!({"echo": true, "logprobs": 1})));
    let both = ask(json!({"prompt_logprobs": 2, "echo": true, "logprobs": 1}));
    let more = ask(json!({"prompt_logprobs": 2, "echo": true, "logprobs": 4}));
    for index in 0..4 {
        assert_eq!(more[index]["prompt_logprobs"], told[index]["prompt_logprobs"]);
        assert_eq!(both[index]["prompt_logprobs"], told[index]["prompt_logprobs"]);
        assert_eq!(both[index]["logprobs"], least[index]["logprobs"]);
        let echoed = least[index]["logprobs"]["token_logprobs"].as_array().unwrap();
        let tokens = both[index]["prompt_logprobs"].as_array().unwrap();
        for (place, echoed) in tokens.iter().zip(echoed).skip(1) {
            assert!(place.as_object().unwrap().values().any(|told| told["logprob"] == *echoed));
        }
    }
    // Nothing need be written for it.
    let choices = ask(json!({"prompt_logprobs": 2, "max_tokens": 0}));
    assert_eq!(choices[3]["prompt_logprobs"], told[3]["prompt_logprobs"]);
}

#[test]
fn a_chat_tells_it_once() {
    let server = Server::shared();
    let body = json!({"messages": question(), "max_tokens": 3, "n": 2, "prompt_logprobs": 4});
    let answer = server.chat(body.clone());
    assert_eq!(answer.status, 200, "{}", answer.text);
    let tokens =
        server.post("/tokenize", &json!({"messages": question()})).json()["tokens"].clone();
    check(server, &answer.json()["prompt_logprobs"], &tokens, 4);
    let told = answer.json()["prompt_logprobs"].clone();
    let places = told.as_array().unwrap().iter().filter_map(Value::as_object);
    let names = places.map(|place| place.len()).sum::<usize>();
    assert_eq!(answer.text.matches("decoded_token").count(), names, "each is told once");
    assert!(answer.json()["choices"][1].get("prompt_logprobs").is_none());
    // The prompt is known by now, and read all the same.
    assert_eq!(server.chat(body).json()["prompt_logprobs"], answer.json()["prompt_logprobs"]);
}

#[test]
fn several_answers_read_the_whole_prompt_once() {
    let server = Server::start(|_| {}, &[]);
    let body = json!({"prompt": STORY.repeat(20), "max_tokens": 1, "n": 8, "prompt_logprobs": 0});
    let answer = server.complete(body).json();
    let tokens = answer["usage"]["prompt_tokens"].as_u64().unwrap();
    let rows = server.engine.state().counters.rows;
    assert!(rows < 3 * tokens, "{rows} rows for 8 answers to {tokens} tokens: {answer}");
}

#[test]
fn what_cannot_be_told_of_a_prompt_is_refused() {
    let server = Server::shared();
    let param = Some("prompt_logprobs");
    for more in [
        json!({"prompt_logprobs": 21}),
        json!({"prompt_logprobs": -1}),
        json!({"prompt_logprobs": true}),
        json!({"prompt_logprobs": 1, "stream": true}),
        json!({"prompt_logprobs": 0, "stream": true}),
        json!({"prompt_logprobs": 0, "prompt": vec![7; 2_049], "max_tokens": 0}),
        json!({"prompt_logprobs": 0, "prompt": vec![7; 257], "n": 128, "max_tokens": 1}),
    ] {
        let mut body = json!({"prompt": STORY});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.complete(body).is_refused(400, param);
    }
    let body = json!({"prompt": vec![7; 256], "n": 128, "max_tokens": 0, "prompt_logprobs": 0});
    assert_eq!(server.complete(body).status, 200);
    let body = json!({"messages": question(), "stream": true, "prompt_logprobs": 1});
    server.chat(body).is_refused(400, param);
    let message = server
        .post("/v1/responses", &json!({"input": "Who are you?", "prompt_logprobs": 0}))
        .is_refused(400, param);
    assert!(message.contains("a response has no place"), "{message}");
    server.wait_until_idle();
}
