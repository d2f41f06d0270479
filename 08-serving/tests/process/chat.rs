//! `ladder chat`: a conversation over the terminal's lines.

use crate::server::Server;
use serde_json::json;
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// What comes of some lines.
fn chat(arguments: &[&str], lines: impl AsRef<[u8]>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    command
        .args(["chat", "--device", "cpu"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // One that is refused reads nothing.
    let _ = child.stdin.take().unwrap().write_all(lines.as_ref());
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_line_is_answered_and_a_new_conversation_knows_nothing_of_the_old() {
    let once = said(&chat(&[], "Who are you?\n"));
    assert!(once.trim().len() > 10, "{once}");
    let (told, asked) = ("The word of Ada is amber.", "What is the word of Ada?");
    let last = |lines: String| {
        let output = said(&chat(&[], lines));
        output.trim().lines().last().unwrap().to_owned()
    };
    assert!(last(format!("{told}\n\n{asked}\n")).contains("amber"), "empty lines say nothing");
    assert!(!last(format!("{told}\n/new\n{asked}\n")).contains("amber"));
    assert_eq!(said(&chat(&[], "Who are you?\n/quit\nWho are you?\n")), once);
    assert_eq!(said(&chat(&[], "")), "");
    let short = said(&chat(&["--tokens", "3"], "Who are you?\n"));
    assert!(once.starts_with(short.trim_end()) && short.len() < once.len(), "{short}");
}

#[test]
fn what_does_not_fit_is_said_and_the_conversation_goes_on() {
    let output = chat(&[], format!("{}\nWho are you?\n", "a long tale ".repeat(300)));
    assert_eq!(output.stdout, chat(&[], "Who are you?\n").stdout);
    // Nobody watches: who has asked hears of it when it ends.
    assert_eq!(output.status.code(), Some(1));
    let problem = String::from_utf8(output.stderr).unwrap();
    assert!(problem.ends_with("error: lines without an answer: 1, see above\n"), "{problem}");
    assert!(problem.contains("longer than the 512 tokens that fit"), "{problem}");
    assert!(problem.contains("/new begins again"), "{problem}");
}

#[test]
fn a_line_that_is_no_text_does_not_end_the_conversation() {
    let output = chat(&[], b"\xff\xfe\nWho are you?\n");
    assert_eq!(output.stdout, chat(&[], "Who are you?\n").stdout);
    assert_eq!(output.status.code(), Some(1));
    let problem = String::from_utf8(output.stderr).unwrap();
    assert!(problem.starts_with("that line is not UTF-8; say it again\nerror: "), "{problem}");
}

#[test]
fn a_wrong_parameter_is_one_line() {
    let output = chat(&["--temperature=-1"], "Who are you?\n");
    let problem = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(problem.starts_with("error: temperature is -1"), "{problem}");
    assert_eq!(problem.trim().lines().count(), 1, "{problem}");
}

#[test]
fn what_was_read_is_in_the_directory_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let with_directory = ["--kv-dir", folder.path().to_str().unwrap()];
    let told = "Once upon a time there was a little fox who lived in the wood. ".repeat(8);
    said(&chat(&[&with_directory[..], &["--tokens", "2"]].concat(), format!("{told}\n")));
    let server = Server::start(&with_directory);
    let body = json!({"messages": [{"role": "user", "content": told.trim()}], "max_tokens": 1});
    let usage = server.post("/v1/chat/completions", &body)["usage"].clone();
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached >= 80, "{usage}");
}
