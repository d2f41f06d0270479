//! The same shapes in PyTorch, where that is there: it brings NVIDIA's own libraries, and FlashAttention.

use super::bench::Shapes;
use anyhow::{Context, Result};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Times them, and writes its samples.
const SCRIPT: &str = include_str!("peers.py");

/// Runs the script in the directory, and says what came of it. Without Python or PyTorch there are no peers, and that is
/// no error.
///
/// # Errors
/// If nothing can be written to the directory.
pub(super) fn run(out: &Path, shapes: &Shapes) -> Result<String> {
    let write = |name: &str, bytes: &[u8]| {
        let path = out.join(name);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    };
    write("peers.py", SCRIPT.as_bytes())?;
    let copies: Vec<usize> = shapes.shapes.iter().map(|&shape| shapes.copies(shape)).collect();
    let asked = json!({ "shapes": shapes.shapes, "copies": copies, "samples": shapes.samples });
    write("shapes.json", &serde_json::to_vec_pretty(&asked)?)?;
    let ran = Command::new("python3")
        .args(["peers.py", "shapes.json", "peers.json"])
        .current_dir(out)
        .stdin(Stdio::null())
        .output();
    Ok(match ran {
        Err(error) => format!("no peers: python3 cannot be run ({error})"),
        Ok(output) if output.status.success() => "peers are timed in peers.json".into(),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("no peers: {}", said.lines().last().unwrap_or("peers.py said nothing"))
        }
    })
}
