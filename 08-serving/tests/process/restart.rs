//! A server that is killed and started again: its file of keys and values is whole, or it is not believed.

use crate::server::Server;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Prompts of a hundred tokens and more, some of which begin alike.
fn prompts() -> Vec<String> {
    let beginning = "Once upon a time there was a little fox who lived in the wood. ".repeat(4);
    let names = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn"];
    let own = |name: &str| format!("{name} went to the market and met a friend. ").repeat(8);
    let apart = names.iter().map(|name| own(name));
    let alike = names.iter().map(|name| format!("{beginning}{}", own(name)));
    apart.chain(alike).collect()
}

/// What a server that keeps nothing answers.
fn expected(prompts: &[String]) -> Vec<Value> {
    let server = Server::start(&[]);
    prompts.iter().map(|prompt| server.ask(prompt).unwrap().tokens).collect()
}

/// Arguments of a server whose pool is too small for the prompts.
fn with_directory(directory: &Path) -> [&str; 4] {
    ["--pool-bytes", "4000000", "--kv-dir", directory.to_str().unwrap()]
}

#[test]
fn killed_at_any_point_it_goes_on_with_what_the_file_has() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = prompts();
    let expected = expected(&prompts);
    let mut known = Vec::new();
    for (answers, wait_ms) in [(0, 0), (0, 130), (1, 3), (5, 17), (14, 40), (30, 1)] {
        let server = Server::start(&with_directory(folder.path()));
        assert!(server.said.len() <= 1, "one line says what was torn: {:?}", server.said);
        let (answered, found) = (AtomicUsize::new(0), Mutex::new(0));
        std::thread::scope(|scope| {
            for client in 0..4 {
                let (server, prompts, expected) = (&server, &prompts, &expected);
                let (answered, found) = (&answered, &found);
                scope.spawn(move || {
                    for which in (0..prompts.len()).cycle().skip(client * 3) {
                        let Some(answer) = server.ask(&prompts[which]) else { return };
                        assert_eq!(answer.tokens, expected[which], "prompt {which}");
                        *found.lock().unwrap() += answer.cached;
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while answered.load(Ordering::Relaxed) < answers {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(wait_ms));
            server.signal("-KILL");
        });
        known.push(found.into_inner().unwrap());
    }
    // Whoever comes after the kills finds what those before have left, on its first request.
    let server = Server::start(&with_directory(folder.path()));
    let first = server.ask(&prompts[0]).unwrap();
    assert!(first.cached >= 80 && first.tokens == expected[0], "{first:?} after {known:?}");
    for (prompt, expected) in prompts.iter().zip(&expected) {
        assert_eq!(server.ask(prompt).unwrap().tokens, *expected);
    }
    // Whoever ends in peace loses nothing.
    server.terminate();
    let server = Server::start(&with_directory(folder.path()));
    assert!(server.said.is_empty(), "{:?}", server.said);
    for (prompt, expected) in prompts.iter().zip(&expected) {
        let answer = server.ask(prompt).unwrap();
        assert_eq!(answer.tokens, *expected);
        assert!(answer.cached >= 80, "{answer:?}");
    }
}

/// The one file in a directory.
fn file_in(directory: &Path) -> PathBuf {
    std::fs::read_dir(directory).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn a_file_that_cannot_be_believed_is_dropped_with_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = &prompts()[..2];
    let expected = expected(prompts);
    let server = Server::start(&with_directory(folder.path()));
    prompts.iter().for_each(|prompt| drop(server.ask(prompt).unwrap()));
    server.terminate();
    let path = file_in(folder.path());
    let whole = std::fs::read(&path).unwrap();
    let mut scribbled = whole.clone();
    scribbled.iter_mut().skip(88).step_by(1_001).for_each(|byte| *byte = !*byte);
    let mut foreign = whole.clone();
    foreign[24..88].fill(7);
    for (bytes, word) in
        [(scribbled, "damaged"), (foreign, "damaged header"), (vec![9; 500], "no file of blocks")]
    {
        std::fs::write(&path, bytes).unwrap();
        let server = Server::start(&with_directory(folder.path()));
        assert!(server.said.len() == 1 && server.said[0].contains(word), "{:?}", server.said);
        for (prompt, expected) in prompts.iter().zip(&expected) {
            let answer = server.ask(prompt).unwrap();
            assert_eq!((&answer.tokens, answer.cached), (expected, 0));
        }
    }
}

#[test]
fn keys_and_values_of_any_type_are_served() {
    let prompts = &prompts()[..2];
    let expected = expected(prompts);
    for (kv, same) in [("f32", true), ("bf16", false), ("bf16-fast", false), ("int8", false)] {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().to_str().unwrap();
        let arguments =
            ["--kv-cache-dtype", kv, "--kv-dir", directory, "--kv-host-bytes", "9000000"];
        let server = Server::start(&arguments);
        let before: Vec<Value> = prompts.iter().map(|p| server.ask(p).unwrap().tokens).collect();
        assert!(!same || before == expected, "{kv}");
        server.terminate();
        let server = Server::start(&arguments);
        for (prompt, before) in prompts.iter().zip(before) {
            let answer = server.ask(prompt).unwrap();
            assert!(answer.tokens == before && answer.cached >= 80, "{kv}: {answer:?}");
        }
        // The next one would have to share the file.
        let mut second = Command::new(env!("CARGO_BIN_EXE_ladder"));
        let second = second
            .args(["serve", "--port", "0", "--device", "cpu"])
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&second.stderr);
        assert!(!second.status.success() && said.contains("is in use"), "{said}");
    }
}
