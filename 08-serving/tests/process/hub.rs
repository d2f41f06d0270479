//! A model by its name on the hub, which a small server on this machine plays: nothing here leaves it.

use crate::server::Server;
use embedded_models::DRAFT;
use ladder_tests::hub::{FakeHub, Files};
use std::net::TcpListener;
use std::process::{Command, Output};

const NAME: &str = "owner/name";

fn model() -> Files {
    Files::from([
        ("config.json", DRAFT.config.to_vec()),
        ("tokenizer.json", DRAFT.tokenizer.to_vec()),
        ("tokenizer_config.json", DRAFT.tokenizer_config.to_vec()),
        ("model.safetensors", DRAFT.weights.to_vec()),
    ])
}

fn ladder(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    command.args(arguments).envs(variables.iter().copied()).env_remove("RUST_BACKTRACE");
    command.output().unwrap()
}

#[test]
fn a_model_is_served_by_its_name_and_the_next_time_without_the_hub() {
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path().to_str().unwrap();
    let hub = FakeHub::serve(model(), None);
    let online = [("HF_ENDPOINT", hub.endpoint.as_str()), ("HF_HUB_CACHE", cache)];
    let server = Server::start_in(&["--model", NAME], &online);
    let models = server.get("/v1/models");
    assert_eq!(models["data"][0]["id"], NAME);
    let answer = server.ask("Once upon a time").unwrap();
    drop(server);
    let asked = hub.requests.lock().unwrap().len();
    assert!(asked >= 5, "four files, and which there are");
    let offline = [("HF_HUB_OFFLINE", "1"), ("HF_HUB_CACHE", cache)];
    let server = Server::start_in(&["--model", NAME], &offline);
    assert_eq!(server.ask("Once upon a time").unwrap(), answer);
    // Every command that takes a model takes one by its name.
    for command in [
        &["generate", "--prompt", "Once", "--tokens", "2", "--device", "cpu"][..],
        &["climb", "--prompt", "Once", "--tokens", "2"],
        &["trace", "--requests", "1", "--prompt-tokens", "4", "--answer-tokens", "2"],
        &["bench", "--prefill", "4", "--decode", "2", "--samples", "1", "--keep", "never"],
    ] {
        let output = ladder(&[command, &["--model", NAME]].concat(), &offline);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}");
    }
    assert_eq!(hub.requests.lock().unwrap().len(), asked, "the hub was not asked again");
}

#[test]
fn without_a_hub_one_line_says_so() {
    let cache = tempfile::tempdir().unwrap();
    // A port that nobody listens on any more.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let hub = FakeHub::serve(model(), Some("secret"));
    let cache = cache.path().to_str().unwrap();
    for (variables, word) in [
        ([("HF_ENDPOINT", endpoint.as_str()), ("HF_HUB_CACHE", cache)], "cannot be reached"),
        ([("HF_HUB_OFFLINE", "1"), ("HF_HUB_CACHE", cache)], "HF_HUB_OFFLINE is set"),
        ([("HF_ENDPOINT", hub.endpoint.as_str()), ("HF_HUB_CACHE", cache)], "HF_TOKEN"),
    ] {
        let arguments = ["serve", "--port", "0", "--device", "cpu", "--model", "owner/name:Q4_K_M"];
        let output = ladder(&arguments, &variables);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(word), "{said}");
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }
}
