//! Each part of a check in a process of its own, with a limit on its time.
//!
//! A kernel that reads where it may not, or that traps, ends its context for good: CUDA asks for a new process. One that
//! waits for what never comes does not end at all. Either is then one part's failure, and the others run.

use super::write;
use crate::say::say;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::{self, Display};
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a part's process leaves for the one that started it, in the directory for all that comes of a check.
pub(super) const OUTCOME: &str = "part.json";

/// How long a process that was killed may take to be gone.
const GRACE: Duration = Duration::from_secs(10);

/// What the parts are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Kernels against the processor.
    Kernels,
    /// A model's tokens.
    Tokens,
    /// Kernels, timed.
    KernelsTimed,
    /// Decoding steps, timed.
    DecodeTimed,
}

impl Kind {
    /// In the order in which they run.
    pub(super) const ALL: [Kind; 4] =
        [Kind::Kernels, Kind::Tokens, Kind::KernelsTimed, Kind::DecodeTimed];

    /// Its file's name, without `.json`.
    fn name(self) -> &'static str {
        match self {
            Kind::Kernels => "kernels",
            Kind::Tokens => "tokens",
            Kind::KernelsTimed => "kernels_timed",
            Kind::DecodeTimed => "decode_timed",
        }
    }

    /// What a part may take, with room: kernels are compiled, references and whole models run on the processor too.
    pub(super) fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Kind::Kernels | Kind::KernelsTimed => 180,
            Kind::DecodeTimed => 900,
            Kind::Tokens => 3600,
        })
    }
}

/// One of the parts of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) index: usize,
}

impl Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.index)
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(part: &str) -> Result<Self, String> {
        let (name, index) = part.split_once(':').unwrap_or((part, ""));
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        let index = index.parse().ok();
        let part = kind.zip(index).map(|(kind, index)| Part { kind, index });
        part.ok_or_else(|| "a part is named as kernels:0 is".into())
    }
}

/// What came of a part.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// What is wrong, if anything is.
    pub(super) problem: Option<String>,
    /// For the kind's file.
    pub(super) results: Vec<Value>,
}

impl Outcome {
    /// Nothing but that it failed, and why.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(super) fn failed(name: &str, problem: &str) -> Result<Self> {
        say!("  FAILED    {name}: {problem}")?;
        let results = vec![json!({ "name": name, "problem": problem })];
        Ok(Outcome { problem: Some(format!("{name}: {problem}")), results })
    }
}

/// Runs all parts of a kind, of these names, and writes what is known after each. What is wrong.
///
/// # Errors
/// If nothing can be written.
pub(super) fn all(
    out: &Path,
    kind: Kind,
    names: &[String],
    mut run: impl FnMut(Part) -> Result<(), String>,
) -> Result<Vec<String>> {
    let (mut wrong, mut results) = (Vec::new(), Vec::new());
    for (index, name) in names.iter().enumerate() {
        let path = out.join(OUTCOME);
        // One of a run before would pass for this part's.
        if path.exists() {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        let ran = run(Part { kind, index });
        let left = || {
            let bytes = fs::read(&path).map_err(|_| "its process left no result".to_owned())?;
            serde_json::from_slice(&bytes).map_err(|error| format!("its result: {error}"))
        };
        let outcome: Outcome = match ran.and_then(|()| left()) {
            Ok(outcome) => outcome,
            Err(problem) => Outcome::failed(name, &problem)?,
        };
        wrong.extend(outcome.problem);
        results.extend(outcome.results);
        write(out, &format!("{}.json", kind.name()), &results)?;
    }
    // The last one's; it is in the kind's file now.
    let _ = fs::remove_file(out.join(OUTCOME));
    Ok(wrong)
}

/// Runs a process, which is killed when its time is over.
///
/// # Errors
/// Says how it ended, unless it ended well.
pub(super) fn within(command: &mut Command, limit: Duration) -> Result<(), String> {
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    match ended(&mut child, limit) {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(format!("its process ended with {status}")),
        Ok(None) => {
            let killed = child.kill().and_then(|()| ended(&mut child, GRACE));
            let how = match killed {
                Ok(Some(_)) => "was killed",
                _ => "cannot be killed: the driver holds it",
            };
            Err(format!("took longer than {} s, and {how}", limit.as_secs_f64()))
        }
        Err(error) => Err(format!("cannot be waited for: {error}")),
    }
}

/// How a process ended, if it did so in time.
fn ended(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        let status = child.try_wait()?;
        if status.is_some() || began.elapsed() >= limit {
            return Ok(status);
        }
        sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<(), String> {
        within(Command::new("sh").args(["-c", script]), limit)
    }

    #[test]
    fn a_process_that_hangs_or_dies_is_over_and_named() {
        let long = Duration::from_secs(60);
        assert_eq!(shell("exit 0", long), Ok(()));
        assert_eq!(shell("exit 3", long).unwrap_err(), "its process ended with exit status: 3");
        assert!(shell("kill -SEGV $$", long).unwrap_err().contains("signal: 11"));
        let began = Instant::now();
        let hung = shell("exec sleep 60", Duration::from_millis(100)).unwrap_err();
        assert_eq!(hung, "took longer than 0.1 s, and was killed");
        assert!(began.elapsed() < Duration::from_secs(30));
        let missing = within(&mut Command::new("/nowhere/at/all"), long).unwrap_err();
        assert!(missing.starts_with("cannot be started"), "{missing}");
    }

    #[test]
    fn a_part_that_fails_is_written_down_and_the_others_run() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        let names = ["good", "hangs", "silent", "wrong", "last"].map(str::to_owned);
        let file = || -> Vec<Value> {
            serde_json::from_slice(&fs::read(out.join("kernels.json")).unwrap()).unwrap()
        };
        let wrong = all(out, Kind::Kernels, &names, |part| {
            if part.index > 0 {
                assert_eq!(file().len(), part.index, "written after each");
            }
            let problem = match part.index {
                1 => return Err("took longer than 180 s, and was killed".into()),
                2 => return Ok(()),
                3 => Some("wrong: 1, right is 2".into()),
                _ => None,
            };
            let results = vec![json!({ "name": names[part.index], "problem": problem })];
            write(out, OUTCOME, &Outcome { problem, results }).map_err(|error| error.to_string())
        });
        let expected = [
            "hangs: took longer than 180 s, and was killed",
            "silent: its process left no result",
            "wrong: 1, right is 2",
        ];
        assert_eq!(wrong.unwrap(), expected);
        let written: Vec<Value> = file().iter().map(|result| result["name"].clone()).collect();
        assert_eq!(written, ["good", "hangs", "silent", "wrong", "last"]);
        assert!(!out.join(OUTCOME).exists());
    }

    #[test]
    fn a_part_is_named_and_found_by_its_name() {
        for kind in Kind::ALL {
            let part = Part { kind, index: 12 };
            assert_eq!(part.to_string().parse(), Ok(part));
        }
        for wrong in ["", "kernels", "kernels:", "kernels:x", "all:1"] {
            assert!(wrong.parse::<Part>().is_err(), "{wrong}");
        }
    }
}
