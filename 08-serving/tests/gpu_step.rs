//! `ladder gpu-step`, as it is typed.

use serde_json::Value;
use std::process::{Command, Output};

fn gpu_step(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ladder")).arg("gpu-step").args(arguments).output().unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = gpu_step(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn without_a_name_there_is_a_list() {
    for list in [printed(&[]), printed(&["--list"])] {
        assert!(list.contains("attention_06_hopper_64") && list.contains("join_splits"), "{list}");
    }
    let list: Value = serde_json::from_str(&printed(&["--list", "--json"])).unwrap();
    assert!(list.as_array().unwrap().iter().any(|kernel| kernel["kernel"] == "argmax"));
}

#[test]
fn a_pipe_gets_the_first_instructions_and_ends() {
    let few = printed(&["rms_norm"]);
    assert!(few.contains("step 20 of") && !few.contains("step 21 of"), "{few}");
    assert!(printed(&["rms_norm", "--steps", "2"]).contains("step 2 of"));
    let all = printed(&["join_splits", "--steps", "1000000"]);
    assert!(all.contains("all blocks of the launch") && all.contains("warp instructions"));
}

#[test]
fn json_has_every_instruction_and_adds_up() {
    let trace: Value = serde_json::from_str(&printed(&["attention_02_tiled", "--json"])).unwrap();
    let steps = trace["steps"].as_array().unwrap();
    assert_eq!(trace["instructions"], steps.len());
    let mut warps: Vec<u64> = steps.iter().map(|step| step["warp"].as_u64().unwrap()).collect();
    warps.sort_unstable();
    warps.dedup();
    assert_eq!(warps, [0, 1, 2, 3]);
    // Two blocks; the second meets both tiles of keys, the first only one: two thirds of the conflicts.
    let conflicts = |access: &Value| {
        access["wavefronts"].as_u64().unwrap() - access["requests"].as_u64().unwrap()
    };
    let shared = steps.iter().flat_map(|step| step["shared"].as_array().unwrap());
    let counts = &trace["counts"];
    let all =
        counts["shared wavefronts"].as_u64().unwrap() - counts["shared requests"].as_u64().unwrap();
    assert_eq!(shared.map(conflicts).sum::<u64>() * 3, all * 2);
    let few: Value =
        serde_json::from_str(&printed(&["attention_02_tiled", "--json", "--steps", "3"])).unwrap();
    assert_eq!(few["steps"].as_array().unwrap().len(), 3);
    assert_eq!(few["instructions"], trace["instructions"]);
}

#[test]
fn what_is_asked_wrongly_is_said() {
    let output = gpu_step(&["atention_02_tiled"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("the nearest is `attention_02_tiled`"),
        "{said}"
    );
    assert!(!gpu_step(&["--steps", "3"]).status.success());
    assert!(!gpu_step(&["argmax", "--list"]).status.success());
}
