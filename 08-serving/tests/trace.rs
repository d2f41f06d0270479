//! `ladder trace`: what it writes is what happened.

use serde_json::Value;
use std::collections::HashMap;
use std::process::Command;

fn trace(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    let output = command.arg("trace").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number: {value}"))
}

#[test]
fn passes_and_requests_add_up() {
    let arguments = ["--requests", "10", "--per-second", "40", "--pool-tokens", "520"];
    for batching in ["continuous", "static"] {
        let trace = trace(&[&arguments[..], &["--batching", batching]].concat());
        assert_eq!((&trace["kind"], &trace["policy"]), (&"timeline".into(), &batching.into()));
        let requests = trace["requests"].as_array().unwrap();
        let passes = trace["passes"].as_array().unwrap();
        assert_eq!(requests.len(), 10);
        let (mut written, mut preempted, mut before) = (HashMap::new(), 0, 0.0);
        for pass in passes {
            let (start, duration) = (&pass["start"], &pass["duration"]);
            let (start, duration) = (start.as_f64().unwrap(), duration.as_f64().unwrap());
            assert!(start >= before, "one pass after the other");
            before = start + duration;
            let spans = pass["spans"].as_array().unwrap();
            assert!((1..=8).contains(&spans.len()));
            assert!(spans.iter().map(|span| number(&span["rows"])).sum::<u64>() <= 64);
            for span in spans {
                *written.entry(number(&span["id"])).or_insert(0) += number(&span["tokens"]);
            }
            preempted += pass["preempted"].as_array().unwrap().len() as u64;
            let blocks = &pass["blocks"];
            assert!(
                number(&blocks["free"]) + number(&blocks["cached"]) <= number(&blocks["total"])
            );
        }
        for request in requests {
            let time = |name: &str| request[name].as_f64().unwrap();
            assert!(time("submitted") <= time("started"));
            assert!(time("started") <= time("first_token"));
            assert!(time("first_token") <= time("finished"));
            let generated = number(&request["usage"]["generated_tokens"]);
            assert_eq!(written[&number(&request["id"])], generated);
        }
        let told = requests.iter().map(|request| number(&request["usage"]["preemptions"]));
        assert_eq!(told.sum::<u64>(), preempted);
    }
}
