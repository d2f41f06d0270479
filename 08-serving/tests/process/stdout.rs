//! A standard output, or a standard error, that cannot be written, as on a full disk.
#![cfg(target_os = "linux")]

use std::fs::OpenOptions;
use std::process::Command;

#[test]
fn a_full_standard_output_is_said_in_one_line() {
    for arguments in [
        &["models"][..],
        &["models", "--json"],
        &["break"],
        &["gpu-step", "--list"],
        &["gpu-step", "argmax", "--steps", "1"],
        &["generate", "--device", "cpu", "--prompt", "Once", "--tokens", "1"],
        &["bench", "--device", "cpu", "--prefill", "1", "--decode", "0", "--samples", "1"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
        let output = command.args(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        let words = "error: cannot write to standard output: No space left on device";
        assert!(said.starts_with(words), "{arguments:?}: {said}");
        assert_eq!(said.trim().lines().count(), 1, "{arguments:?}: {said}");
    }
}

#[test]
fn what_nobody_reads_beside_the_output_is_no_reason_to_fail() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let generate = ["generate", "--device", "cpu", "--prompt", "Once", "--tokens", "1"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    let output = command.args(generate).stderr(full()).output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert!(output.stdout.starts_with(b"Once"));
    // What fails for another reason does so by its own exit status.
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    let status = command.args(["generate", "--prompt", ""]).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}
