//! Tokens and words that an answer is not to have.

use super::server::{STORY, Server, question};
use serde_json::{Value, json};

fn tokens(server: &Server, text: &str) -> Vec<u64> {
    let body = json!({"prompt": text, "add_special_tokens": false});
    ids(&server.post("/tokenize", &body).json()["tokens"])
}

fn ids(tokens: &Value) -> Vec<u64> {
    tokens.as_array().unwrap().iter().map(|token| token.as_u64().unwrap()).collect()
}

fn has(text: &[u64], word: &[u64]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

#[test]
fn a_bad_word_is_not_said_streamed_or_whole() {
    let server = Server::shared();
    let base = json!({
        "messages": question(), "temperature": 0, "max_tokens": 40, "return_token_ids": true, "n": 2,
    });
    let say = |bad: &[&str], stream: bool| -> Vec<Vec<u64>> {
        let mut body = base.clone();
        (body["bad_words"], body["stream"]) = (json!(bad), json!(stream));
        let answer = server.chat(body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        if !stream {
            let choices = answer.json()["choices"].as_array().unwrap().clone();
            return choices.iter().map(|choice| ids(&choice["token_ids"])).collect();
        }
        let mut said = vec![Vec::new(); 2];
        for event in answer.events() {
            let choice = &event["choices"][0];
            if let (Some(index), Some(_)) =
                (choice["index"].as_u64(), choice["token_ids"].as_array())
            {
                said[index as usize].extend(ids(&choice["token_ids"]));
            }
        }
        said
    };
    let plain = server.chat(base.clone()).json();
    let text = plain["choices"][0]["message"]["content"].as_str().unwrap();
    // Each word of what is said otherwise, whatever it is made of.
    let words: Vec<&str> = text.split_whitespace().collect();
    let inside = words.iter().map(|word| tokens(server, &format!(" {word}")));
    let most = inside.map(|word| word.len()).max().unwrap();
    assert!(most > 1, "no word of several tokens: {text}");
    for bad in [&words[..1], &words[1..], &words] {
        let said = say(bad, false);
        assert_eq!(said, say(bad, true), "{bad:?}");
        for said in said {
            for word in bad {
                for form in [(*word).to_owned(), format!(" {word}")] {
                    assert!(!has(&said, &tokens(server, &form)), "{form:?} in {said:?}");
                }
            }
            assert!(!said.is_empty());
        }
    }
    assert!(say(&[], false).iter().all(|said| has(said, &tokens(server, words[0]))));
}

#[test]
fn only_tokens_that_are_allowed_are_said() {
    let server = Server::shared();
    let allowed = tokens(server, " Ada was at the mill.");
    for (stream, seed) in [(false, 1), (true, 1), (false, 2)] {
        let body = json!({
            "prompt": STORY, "max_tokens": 30, "seed": seed, "temperature": 1.5, "stream": stream,
            "return_token_ids": true, "allowed_token_ids": allowed, "logprobs": 3, "n": 2,
        });
        let answer = server.complete(body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        let parts = if stream { answer.events() } else { vec![answer.json()] };
        let choices = parts.iter().flat_map(|part| part["choices"].as_array().unwrap());
        let (mut said, mut others) = (0, 0);
        for choice in choices {
            let told = ids(&choice["token_ids"]);
            said += told.len();
            assert!(told.iter().all(|token| allowed.contains(token)), "{told:?}");
            // Log-probabilities are the model's, which would say something else.
            let logprobs = &choice["logprobs"];
            let list = |key: &str| logprobs[key].as_array().unwrap().iter();
            others += list("token_logprobs").filter(|p| p.as_f64().unwrap() < -3.0).count();
            assert!(list("top_logprobs").all(|top| top.as_object().unwrap().len() >= 3));
        }
        // None of them ends the answer.
        assert!(said == 60 && others > 0, "{said} {others}");
    }
}

#[test]
fn an_answer_of_a_form_has_only_what_is_allowed_in_it() {
    let server = Server::shared();
    // The form is whole after three of them, and ends: nobody need name the model's end tokens.
    let body = json!({
        "prompt": STORY, "structured_outputs": {"regex": "[0-9]{3}"}, "max_tokens": 20,
        "allowed_token_ids": tokens(server, "7"), "bad_words": ["<|end|>"],
    });
    assert_eq!(server.text(body), "777");
    // Nor where it is whole and might go on with something that is not.
    for (form, allowed, whole) in [
        (json!({"regex": "7(8)?"}), "7", "7"),
        (json!({"grammar": "root ::= \"7\" | \"78\""}), "7", "7"),
        (json!({"regex": "7{2,4}"}), "7", "7777"),
    ] {
        let body = json!({
            "prompt": STORY, "structured_outputs": form, "allowed_token_ids": tokens(server, allowed),
            "temperature": 0, "max_tokens": 20, "min_tokens": 4,
        });
        assert_eq!(server.text(body), whole, "{form}");
    }
}

#[test]
fn a_request_that_leaves_nothing_to_say_is_to_blame_for_it() {
    let server = Server::shared();
    let form = json!({"regex": "7{3}"});
    for stream in [false, true] {
        let body = json!({
            "prompt": STORY, "structured_outputs": form, "allowed_token_ids": tokens(server, "a"),
            "stream": stream,
        });
        let message = server.complete(body).is_refused(400, Some("allowed_token_ids"));
        assert!(message.contains("form of the answer"), "{message}");
    }
    let body = json!({
        "messages": question(), "structured_outputs": {"regex": "é"}, "bad_words": ["é", "\u{e9}"],
        "allowed_token_ids": tokens(server, "é"),
    });
    server.chat(body).is_refused(400, Some("bad_words"));
    server.wait_until_idle();
}
