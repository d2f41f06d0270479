//! Options of `ladder serve`: all that there are, and those that cannot be.

use crate::server::Server;
use embedded_models::TARGET;
use serde_json::json;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output};
use std::time::Duration;

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
        (["--kv-host-bytes", "1"], "--kv-host-bytes is 1, expected 0 or at least"),
        (["--served-model-name", ""], "--served-model-name is empty, expected a name"),
        (["--pool-bytes", &more_than_there_is], "than the system has to give"),
        (["--kv-dir", "/dev/null/x"], "/dev/null/x: cannot be made"),
        (["--host", "nobody.invalid"], "cannot listen on nobody.invalid:8000"),
        (["--model", "/dev/null/x"], "\"/dev/null/x\", which is not there"),
        (["--device=cpu", "/dev/null/x"], "\"/dev/null/x\", which is not there"),
        (["--max-model-len", "513"], "--max-model-len is 513, expected at most 512"),
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
        (["--timeout", "-1"], "'--timeout <SECONDS>': expected seconds, more than 0"),
        (["--timeout", "1e300"], "more than 0"),
        (["--kv", "q3"], "f32, bf16, bf16-fast, f16 or int8"),
        (["--kv-dir-bytes", "1"], "--kv-dir"),
        (["--weights", "q9"], "q8_0"),
        (["--model=draft", "target"], "'--model <WHAT>' cannot be used with '[WHAT]'"),
        (
            ["--max-model-len", "0"],
            "'--max-model-len <TOKENS>': expected a whole number, at least 1",
        ),
        (
            ["--max-num-seqs", "0"],
            "'--max-num-seqs <REQUESTS>': expected a whole number, at least 1",
        ),
        (["--max-num-batched-tokens", "0"], "expected a whole number, at least 1"),
        (["--max-queue", "0"], "'--max-queue <REQUESTS>': expected a whole number, at least 1"),
        (["--drain-seconds", "soon"], "--drain-seconds"),
        (["--allowed-origin", "example.org"], "such as https://example.org"),
        (["--scheduling-policy", "fair"], "--scheduling-policy"),
        (["--generation-config", "mine"], "--generation-config"),
    ] {
        let output = serve(&arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}

#[test]
fn a_key_that_cannot_be_read_does_not_let_in_everybody() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    let key = OsStr::from_bytes(b"ad\xffa");
    let output = command.args(["serve", "--port", "0"]).env("LADDER_API_KEY", key);
    // An address that this machine has not: it ends in any case.
    let output = output.args(["--host", "192.0.2.1"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: LADDER_API_KEY is not UTF-8"), "{said}");
}

#[test]
fn it_listens_where_a_name_leads_and_keeps_a_pool_of_a_size_in_words() {
    let server = Server::start(&["--host", "localhost", "--pool-bytes", "3MiB"]);
    assert_eq!(server.get("/v1/models")["data"][0]["id"], "target");
    // 3,072 bytes a token.
    assert!(server.listens.contains("pool_tokens=1024"), "{}", server.listens);
}

#[test]
fn how_much_is_served_at_once_is_as_it_is_told() {
    let told = ["--max-model-len", "100", "--max-num-seqs", "3", "--max-num-batched-tokens", "40"];
    let server = Server::start(&[&told[..], &["--max-queue", "5"]].concat());
    assert_eq!(server.get("/v1/models")["data"][0]["max_model_len"], 100);
    let refused = server.post_for_error("/v1/completions", &json!({"prompt": vec![7; 101]}));
    assert!(refused.contains("100 tokens at most"), "{refused}");
    let refused = server.post_for_error("/v1/completions", &json!({"prompt": "a", "n": 9}));
    assert!(refused.contains("at most 8, as many as may run and wait"), "{refused}");
    assert!(server.said.is_empty(), "{:?}", server.said);
    for (arguments, words) in [
        (["--max-num-seqs", "9", "--max-num-batched-tokens", "8"], "is 8, expected at least 9"),
        (["--max-model-len", "512", "--pool-bytes", "1MiB"], "at most 336: the pool holds no more"),
    ] {
        let said = String::from_utf8(serve(&arguments).stderr).unwrap();
        assert!(said.starts_with("error: ") && said.contains(words), "{said}");
    }
}

#[test]
fn a_pool_that_makes_texts_shorter_is_told_of_with_what_helps() {
    let server = Server::start(&["--pool-bytes", "1MiB"]);
    let said = server.said.concat();
    let words = "texts have 336 tokens at most, and the model is for 512: the pool holds no more; \
        --pool-bytes 1572864 holds as many";
    assert!(said.contains(words), "{said}");
    let server = Server::start(&["--pool-bytes", "1572864"]);
    assert!(server.said.is_empty(), "{:?}", server.said);
    // Whoever has said how long they are to be knows.
    let server = Server::start(&["--pool-bytes", "1MiB", "--max-model-len", "300"]);
    assert!(server.said.is_empty(), "{:?}", server.said);
}

#[test]
fn what_a_model_s_files_say_of_sampling_is_taken_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(directory.path().join(name), bytes);
    write("config.json", TARGET.config).unwrap();
    write("model.safetensors", TARGET.weights).unwrap();
    write("tokenizer.json", TARGET.tokenizer).unwrap();
    write("generation_config.json", br#"{"temperature": 0.0, "top_k": 20}"#).unwrap();
    let path = directory.path().to_str().unwrap();
    let body = json!({"prompt": "Once upon a time", "n": 4, "max_tokens": 20});
    let texts = |server: &Server| -> BTreeSet<String> {
        let answer = server.post("/v1/completions", &body);
        let choices = answer["choices"].as_array().unwrap().iter();
        choices.map(|choice| choice["text"].to_string()).collect()
    };
    let server = Server::start(&["--model", path]);
    assert!(server.said.concat().contains("temperature=0 top_k=20"), "{:?}", server.said);
    assert_eq!(texts(&server).len(), 1, "the likeliest token, each time");
    let server = Server::start(&[path, "--generation-config", "none"]);
    assert!(server.said.is_empty(), "{:?}", server.said);
    assert!(texts(&server).len() > 1, "OpenAI's temperature is 1");
    write("generation_config.json", br#"{"top_p": 0}"#).unwrap();
    let said = String::from_utf8(serve(&["--model", path, "--device", "cpu"]).stderr).unwrap();
    assert!(said.contains("top_p is 0") && said.contains("--generation-config none"), "{said}");
    // What is no number keeps nobody from the model who does not ask for it.
    write("generation_config.json", br#"{"top_p": "much"}"#).unwrap();
    let said = String::from_utf8(serve(&["--model", path, "--device", "cpu"]).stderr).unwrap();
    assert!(said.contains("generation_config.json") && said.contains("passes them over"), "{said}");
    let server = Server::start(&["--model", path, "--generation-config", "none"]);
    assert!(texts(&server).len() > 1);
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
fn the_log_has_what_it_is_asked_for() {
    let server = Server::start_in(&[], &[("RUST_LOG", "serving=debug")]);
    server.ask("Once upon a time").unwrap();
    server.logs("tokens=24");
    server.logs("method=POST path=\"/v1/completions\" status=200");
    // All lines of a request have its name.
    server.ask_as("mill-7", 3, false);
    server.logs("request{id=\"mill-7\"}: an answer has ended");
    server.ask_as("mill-8", 400, true);
    server.logs("request{id=\"mill-8\"}: a client has gone before its answer was done");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    let refused = command.arg("serve").env("RUST_LOG", "serving=loud").output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.starts_with("error: RUST_LOG is serving=loud, expected a level"), "{said}");
}

#[test]
fn an_answer_ends_when_its_time_is_up() {
    // So few at a time that no machine is done with all of them by then.
    let server = Server::start(&["--timeout", "1", "--max-num-seqs", "2"]);
    let body =
        json!({"prompt": "Once upon a time", "max_tokens": 500, "ignore_eos": true, "n": 64});
    let answer = server.post("/v1/completions", &body);
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 64, "{answer}");
    assert!(choices.iter().all(|choice| choice["finish_reason"] == "length"), "{answer}");
    let written = answer["usage"]["completion_tokens"].as_u64().unwrap();
    assert!(written < 64 * 500, "no server writes {written} tokens in a second");
}

/// Many systems let a process have few files at first; a connection is one.
#[test]
fn where_files_run_out_connections_make_room_for_each_other() {
    // The system's own limit is above what the process begins with: it asks for more.
    let server = Server::start_in_shell("ulimit -Sn 256", &[]);
    assert!(
        server.said.iter().all(|line| !line.contains("files may be open")),
        "{:?}",
        server.said
    );
    // It is not: there are fewer places.
    let server = Server::start_in_shell("ulimit -n 256", &[]);
    server.logs("256 files may be open, so 64 connections at once");
    let address = server.url.strip_prefix("http://").unwrap();
    let ask = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut said = [0; 12];
        stream.read_exact(&mut said).unwrap();
        assert!(said.ends_with(b"200"), "{:?}", String::from_utf8_lossy(&said));
        stream
    };
    // None of them goes away.
    let kept: Vec<TcpStream> = (0..300).map(ask).collect();
    assert_eq!(kept.len(), 300);
}

#[test]
fn an_embedded_model_is_called_as_whoever_serves_it_did() {
    let server = Server::start(&["--model", "draft"]);
    assert_eq!(server.get("/v1/models")["data"][0]["id"], "draft");
}
