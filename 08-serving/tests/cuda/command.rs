//! `--device` and `gpu-check`, where there is no GPU.

use cuda_executor::Driver;
use std::process::{Command, Output};

fn ladder(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    command.args(arguments).env("RUST_BACKTRACE", "0").output().unwrap()
}

#[test]
fn without_a_driver_cuda_is_refused_in_one_line() {
    // With one there is nothing to refuse.
    let Err(error) = Driver::open() else { return };
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("checked");
    for command in [
        &["generate", "--prompt", "Once", "--device", "cuda"][..],
        &["serve", "--port", "0", "--device", "cuda"],
        &["chat", "--device", "cuda"],
        &["bench", "--device", "cuda", "--prefill", "4", "--decode", "0"],
        &["gpu-check", "--out", out.to_str().unwrap()],
    ] {
        let output = ladder(command);
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("error: {error}\n"));
        assert!(output.stdout.is_empty());
    }
    assert!(!out.exists(), "nothing is written where nothing was checked");
}

#[test]
fn unless_asked_for_a_gpu_is_not_missed() {
    if Driver::open().is_ok() {
        return;
    }
    let said = |more: &[&str]| {
        let usual = ["generate", "--prompt", "The word of Ada is amber.", "--tokens", "5"];
        let output = ladder(&[&usual[..], more].concat());
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(said(&[]), said(&["--device", "cpu"]));
    assert_eq!(said(&["--device", "auto"]), said(&["--device", "cpu"]));
    let output = ladder(&["generate", "--prompt", "a", "--device", "tpu"]);
    assert_eq!(output.status.code(), Some(2));
}
