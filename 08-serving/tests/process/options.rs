//! Options of `ladder serve`: all that there are, and those that cannot be.

use crate::server::Server;
use serde_json::json;
use std::net::TcpListener;
use std::process::{Command, Output};

fn serve(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    command.arg("serve").args(arguments).env_remove("LADDER_API_KEY").output().unwrap()
}

/// The book shows that file.
#[test]
fn the_book_lists_the_options_that_there_are() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/process/serve-help.txt");
    let told = String::from_utf8(serve(&["--help"]).stdout).unwrap();
    let shown = std::fs::read_to_string(file).unwrap();
    let again = "cargo ladder serve --help > 08-serving/tests/process/serve-help.txt";
    assert_eq!(shown, told, "written again by `{again}`");
}

#[test]
fn what_cannot_be_had_is_said_in_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let more_than_there_is = usize::MAX.to_string();
    for (arguments, word) in [
        (["--port", &port], "cannot listen on 127.0.0.1:"),
        (["--host", "192.0.2.1"], "cannot listen on 192.0.2.1:8000"),
        (["--api-key", ""], "API key is empty"),
        (["--pool-bytes", "10"], "one block"),
        (["--pool-bytes", &more_than_there_is], "than the system has to give"),
        (["--kv-dir", "/dev/null/x"], "/dev/null/x: cannot be made"),
        (["--host", "nobody.invalid"], "cannot listen on nobody.invalid:8000"),
        (["--model", "/dev/null/x"], "\"/dev/null/x\", which is not there"),
    ] {
        let output = serve(&arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains(word), "{arguments:?}: {said}");
        assert_eq!(said.trim().lines().count(), 1, "{arguments:?}: {said}");
    }
    // Nobody waits for a model to hear that the port is taken.
    let output = serve(&["--port", &port, "--model", "/dev/null/x"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: cannot listen on 127.0.0.1:"), "{said}");
    for (arguments, word) in [
        (["--pool-bytes", "2G"], "such as 2147483648, 2GiB or 500MB"),
        (["--port", "65536"], "65536"),
        (["--timeout", "0"], "more than 0"),
        (["--timeout", "1e300"], "more than 0"),
        (["--kv", "q3"], "f32, bf16, bf16-fast, f16 or int8"),
        (["--kv-dir-bytes", "1"], "--kv-dir"),
        (["--weights", "q9"], "q8_0"),
    ] {
        let output = serve(&arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}

#[test]
fn it_listens_where_a_name_leads_and_keeps_a_pool_of_a_size_in_words() {
    let server = Server::start(&["--host", "localhost", "--pool-bytes", "3MiB"]);
    assert_eq!(server.get("/v1/models")["data"][0]["id"], "target");
    // 3,072 bytes a token.
    assert!(server.listens.contains("pool_tokens=1024"), "{}", server.listens);
}

#[test]
fn it_says_what_weights_are_kept_as_and_which_were_converted() {
    let said = Server::start(&[]).listens.clone();
    // Four stacks in each of six layers, and the table.
    assert!(said.contains("weights=\"25 x bf16\""), "{said}");
    let said = Server::start(&["--weights", "q8_0"]).listens.clone();
    assert!(said.contains("weights=\"25 x q8_0 (converted)\""), "{said}");
}

#[test]
fn tools_that_the_model_is_not_told_of_are_in_the_log() {
    let server = Server::start(&[]);
    let body = json!({
        "messages": [{"role": "user", "content": "Weather?"}], "max_tokens": 2,
        "tools": [{"type": "function", "function": {"name": "weather"}}],
    });
    server.post("/v1/chat/completions", &body);
    server.logs("the model is not told of them");
}

#[test]
fn the_log_has_what_it_is_asked_for() {
    let server = Server::start_in(&[], &[("RUST_LOG", "serving=debug")]);
    server.ask("Once upon a time").unwrap();
    server.logs("tokens=24");
    server.logs("method=POST path=\"/v1/completions\" status=200");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    let refused = command.arg("serve").env("RUST_LOG", "serving=loud").output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.starts_with("error: RUST_LOG is serving=loud, expected a level"), "{said}");
}

#[test]
fn an_answer_ends_when_its_time_is_up() {
    let server = Server::start(&["--timeout", "0.05"]);
    let body =
        json!({"prompt": "Once upon a time", "max_tokens": 500, "ignore_eos": true, "n": 64});
    let answer = server.post("/v1/completions", &body);
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 64, "{answer}");
    assert!(choices.iter().all(|choice| choice["finish_reason"] == "length"), "{answer}");
    let written = answer["usage"]["completion_tokens"].as_u64().unwrap();
    assert!(written < 64 * 500, "no server writes {written} tokens in a twentieth of a second");
}
