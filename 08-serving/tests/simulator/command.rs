//! `ladder simulate`, as it is typed.

use naive_decode::roofline::PUBLISHED;
use serde_json::Value;
use serving::simulator::CARDS;
use std::process::{Command, Output};

fn ladder(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    command.env_remove("RUST_BACKTRACE");
    command.arg("simulate").args(arguments.split_whitespace()).output().unwrap()
}

fn json(arguments: &str) -> Value {
    let output = ladder(&format!("{arguments} --json"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(arguments: &str) -> String {
    let output = ladder(arguments);
    assert!(!output.status.success(), "{arguments} was taken");
    assert!(output.stdout.is_empty(), "{arguments}: it had begun");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_shape_on_a_card() {
    let load = "--requests 30 --per-second 5 --prompt-tokens 300 --answer-tokens 100";
    let report = json(&format!("--shape llama-3-8b --hardware h100 {load}"));
    assert_eq!(report["model"], "llama-3-8b");
    assert_eq!(report["hardware"]["name"], "NVIDIA H100 SXM");
    assert_eq!(report["roofline"]["kv_bytes_per_token"], 131_072.0);
    assert!(report["calibration"].is_null());
    let run = &report["run"];
    assert_eq!(run["pass_times"], "roofline");
    assert_eq!(run["requests"].as_array().unwrap().len(), 30);
    assert!(run["cost_per_million_tokens"].as_f64().unwrap() > 0.0);
    assert_eq!(report, json(&format!("--shape llama-3-8b --hardware h100 {load}")), "once more");
}

#[test]
fn lengths_that_are_cut_are_told() {
    let load = "--requests 200 --prompt-tokens 3000 --answer-tokens 1000";
    let card = "--shape llama-3-8b --hardware h100";
    let report = json(&format!("{card} {load}"));
    let requests = report["run"]["requests"].as_array().unwrap();
    let prompts = || requests.iter().map(|request| request["prompt"].as_u64().unwrap());
    assert_eq!(prompts().max(), Some(4096));
    let cut = |request: &&Value| {
        let of = |what: &str| request[what].as_u64().unwrap();
        of("prompt") == 4096 || of("prompt") + of("answer") == 8192
    };
    let cut = requests.iter().filter(cut).count();
    assert!((20..100).contains(&cut), "{cut}");
    assert_eq!((&report["load"]["longest"], &report["load"]["cut"]), (&8192.into(), &cut.into()));
    assert_eq!(report["load"]["prompt_tokens"], prompts().sum::<u64>() as f64 / 200.0);
    let output = ladder(&format!("{card} {load}"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("({cut} of them are cut to")), "{text}");
    let fixed = "--requests 3 --prompt-tokens 5000 --answer-tokens 1000 --lengths fixed";
    let fixed = json(&format!("{card} {fixed}"));
    assert_eq!(fixed["load"]["cut"], 0);
}

#[test]
fn every_number_can_be_another() {
    let arguments = "--shape llama-2-70b --hardware h200 --cards 2 --memory 100 --bandwidth 4000 \
        --tflops 500 --price 9 --weight-bits 8 --kv gqa:4 --kv-bits 8 --window 1000 --batching static \
        --rows 128 --running 16 --pool-tokens 20000 --lengths fixed --clients 4 --requests 8";
    let report = json(arguments);
    let hardware = &report["hardware"];
    assert_eq!(hardware["memory_bytes"], 200e9);
    assert_eq!(hardware["bytes_per_second"], 8e12);
    assert_eq!(hardware["flops_per_second"], 1e15);
    assert_eq!(hardware["price_per_hour"], 18.0);
    assert_eq!(report["roofline"]["kv_bytes_per_token"], 80.0 * 2.0 * 4.0 * 128.0);
    assert_eq!(report["run"]["policy"], "static");
    assert_eq!(report["run"]["memory"]["pool"], 20_000.0 * 80.0 * 2.0 * 4.0 * 128.0);
    let answers = report["run"]["requests"].as_array().unwrap().iter();
    assert!(answers.map(|request| &request["answer"]).all(|answer| answer == 48));
}

#[test]
fn this_machine_is_measured() {
    let report = json("--requests 6 --rows 32 --running 2 --prompt-tokens 20 --answer-tokens 10");
    assert_eq!(report["run"]["pass_times"], "measured");
    assert_eq!(report["run"]["generated_tokens"], {
        let requests = report["run"]["requests"].as_array().unwrap().iter();
        requests.map(|request| request["answer"].as_u64().unwrap()).sum::<u64>()
    });
    assert!(report["calibration"]["passes"].as_u64().unwrap() > 20);
    assert!(report["hardware"]["bytes_per_second"].as_f64().unwrap() > 1e8);
}

#[test]
fn people_get_the_roofline_first_and_then_the_run() {
    let output = ladder("--shape llama-2-13b --hardware h100 --draft 4 --requests 4");
    let text = String::from_utf8(output.stdout).unwrap();
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} in {text}"));
    assert!(at("What the roofline allows") < at("A run of 4 requests"));
    assert!(at("guesses   3.36 tokens a step") > at("ridge point 295.2"));
    at("a million tokens cost $");
}

#[test]
fn the_roofline_is_shown_of_what_does_not_fit_too() {
    let output = ladder("--shape llama-2-70b --hardware h100");
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("does not fit"));
    assert!(String::from_utf8(output.stderr).unwrap().contains("138.0 GB"));
}

#[test]
fn what_is_wrong_is_said() {
    for (arguments, expected) in [
        ("--shape gpt-5", "the shape is \"gpt-5\", expected smollm2-135m"),
        ("--shape llama-3-8b --hardware tpu", "the card is \"tpu\", expected l4"),
        ("--shape llama-3-8b --hardware h100 --per-second 0", "requests per second is 0"),
        ("--shape llama-3-8b --hardware h100 --per-second -1", "requests per second is -1"),
        ("--shape llama-3-8b --hardware h100 --per-second NaN", "requests per second is NaN"),
        ("--shape llama-3-8b --hardware h100 --cards 0", "cards is 0"),
        ("--shape llama-3-8b --hardware h100 --bandwidth -1", "bytes a second is -1000000000"),
        ("--shape llama-3-8b --hardware h100 --memory -1", "bytes of memory is -1000000000"),
        ("--shape llama-3-8b --hardware h100 --cards -1", "'-1' for '--cards <CARDS>'"),
        ("--shape llama-3-8b --hardware h100 --bandwidth 0", "bytes a second is 0"),
        ("--shape llama-3-8b --hardware h100 --weight-bits 0", "bits of a weight is 0"),
        ("--shape llama-3-8b --hardware h100 --kv gqa:5", "a divisor of the 32 query heads"),
        ("--shape llama-3-8b --hardware h100 --kv lora", "the KV method is \"lora\""),
        (
            "--shape llama-3-8b --hardware h100 --prompt-tokens 8000 --answer-tokens 400",
            "tokens of a prompt and its answer, on average, is 8400, expected at most the 8192",
        ),
        ("--shape llama-3-8b --hardware h100 --running 0", "requests that run at once is 0"),
        ("--shape llama-3-8b --hardware h100 --clients 0", "clients is 0"),
        ("--shape llama-3-8b --model x", "cannot be used with"),
        ("--weight-bits 8", "go with --shape or a card's name"),
        ("--cards 2", "this machine is measured"),
        ("--rows 4 --running 8", "rows of a pass is 4"),
    ] {
        let said = refused(arguments);
        assert!(said.contains(expected), "{arguments}: {said}");
    }
}

#[test]
fn help_names_every_shape_and_card() {
    let help = String::from_utf8(ladder("--help").stdout).unwrap();
    let words: Vec<&str> = help.split_whitespace().map(|word| word.trim_matches(',')).collect();
    for name in PUBLISHED.map(|model| model.name).into_iter().chain(CARDS.map(|card| card.name)) {
        assert!(words.contains(&name), "{name} in {help}");
    }
}
