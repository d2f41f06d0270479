//! `ladder gpu-step`: a small launch of a committed kernel, instruction by instruction, on this machine's processor.
//!
//! | File | Holds |
//! |---|---|
//! | `recording.rs` | what the interpreter tells of the last block, kept |
//! | `draw.rs` | one moment as text: warps, registers, banks, what is under way |
//! | `walk.rs` | going through it by hand |
//! | `json.rs` | the same as JSON |

mod draw;
mod json;
mod recording;
mod walk;

pub use recording::{Moment, Recording};

use crate::say::say;
use anyhow::{Result, bail};
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use cuda_kernels::small::{ALL, Small};
use std::io::{IsTerminal, stdin, stdout};

/// Width of a table that goes to a file or a pipe.
const WIDTH_ELSEWHERE: u16 = 120;

/// Which kernel to step through.
#[derive(Debug, Clone, Args)]
pub struct GpuStepArgs {
    /// The kernel's name; without it, list what there is
    kernel: Option<String>,
    /// List the kernels that can be stepped through
    #[arg(long, conflicts_with = "kernel")]
    list: bool,
    /// Print so many instructions and end, instead of asking; 20 where nobody watches
    #[arg(long, value_name = "N", requires = "kernel")]
    steps: Option<usize>,
    /// Print one JSON object; every instruction, unless --steps says how many
    #[arg(long)]
    json: bool,
}

/// Lists kernels, or runs a small launch of one in the interpreter and shows its last block step by step.
///
/// # Errors
/// If no kernel has this name: the nearest one is named. If input or output cannot be used.
pub fn gpu_step(args: &GpuStepArgs) -> Result<()> {
    let Some(name) = args.kernel.as_deref().filter(|_| !args.list) else {
        match args.json {
            true => say!("{:#}", json::list())?,
            false => say!("{}", list())?,
        }
        return Ok(());
    };
    let recording = Recording::of(find(name)?)?;
    if args.json {
        let most = args.steps.unwrap_or(usize::MAX);
        say!("{}", json::recording(&recording, most))?;
        return Ok(());
    }
    let is_watched = stdin().is_terminal() && stdout().is_terminal();
    if args.steps.is_none() && is_watched {
        return walk::walk(&recording, &mut stdin().lock(), &mut stdout());
    }
    let steps = args.steps.unwrap_or(20).min(recording.moments.len());
    say!("{}", draw::heading(&recording))?;
    (0..steps).try_for_each(|at| say!("{}", draw::moment(&recording, at)))?;
    if steps == recording.moments.len() {
        say!("{}", draw::counts(&recording))?;
    }
    Ok(())
}

fn find(name: &str) -> Result<&'static Small> {
    if let Some(small) = ALL.iter().find(|small| small.name == name) {
        return Ok(small);
    }
    let near = |small: &Small| strsim::jaro_winkler(name, small.name);
    let nearest = ALL.iter().max_by(|a, b| near(a).total_cmp(&near(b)));
    let nearest = nearest.map_or("", |small| small.name);
    bail!(
        "no kernel is called `{name}`; the nearest is `{nearest}`, and `ladder gpu-step --list` has all"
    )
}

fn list() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if !table.is_tty() {
        table.set_width(WIDTH_ELSEWHERE);
    }
    table.set_header(["kernel", "threads", "what is launched"]);
    for small in &ALL {
        let threads = small.launch().threads.to_string();
        table.add_row([small.name, &threads, small.about]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_there_gets_the_nearest() {
        for (asked, nearest) in
            [("attention_02", "attention_02_tiled"), ("rmsnorm", "rms_norm"), ("", "attention_01")]
        {
            let said = find(asked).err().unwrap().to_string();
            assert!(said.contains(nearest) || asked.is_empty(), "{said}");
            assert!(said.contains("--list"), "{said}");
        }
        assert_eq!(find("argmax").unwrap().name, "argmax");
    }
}
