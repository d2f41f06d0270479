//! The proof that a workbook is worth something: with all exercises open it compiles, each exercise that is open makes its
//! tests fail by what it says, and with all solved the same tests pass.
//!
//! Tests are compiled once, with every exercise behind a switch that a variable throws.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use super::cut::{Body, SWITCH};
use super::{Exercise, exercises, write_with};
use crate::place::Place;
use crate::verified::{Test, package_name};

/// Proves all exercises, and says of each how its tests fared.
pub(crate) fn prove(place: &Place) -> anyhow::Result<()> {
    let exercises = exercises(place)?;
    let folder = tempfile::tempdir()?;
    let open = write_with(place, &folder.path().join("open"), &exercises, |exercise| {
        Body::Open(&exercise.think)
    })?;
    println!("With all {} exercises open it has to compile.", exercises.len());
    // It warns of what only the functions that are open would use.
    let check = cargo(place, &open).args(["check", "--workspace", "--lib", "--quiet"]).output()?;
    let said = String::from_utf8_lossy(&check.stderr);
    ensure!(
        check.status.success(),
        "with all exercises open the workspace does not compile:\n{said}"
    );

    let switched = write_with(place, &folder.path().join("switched"), &exercises, |exercise| {
        Body::Switched { name: &exercise.name, think: &exercise.think }
    })?;
    println!("Now their tests, with every exercise behind a switch.");
    let programs = programs(place, &switched, &exercises)?;
    let mut wrong = 0;
    for exercise in &exercises {
        for test in exercise.tests(place)? {
            let program = programs.get(&key(&test)).context("a test has a program")?;
            let (found, said) = verdict(program, &test, exercise)?;
            println!("{:24} {}::{}: {found}", exercise.name, test.package, test.name);
            if found != Verdict::Proved {
                println!("{said}");
                wrong += 1;
            }
        }
    }
    ensure!(wrong == 0, "{wrong} tests do not tell an open exercise from a solved one");
    Ok(())
}

/// Cargo in a copy of a workspace. It has a `target` that only proofs use, unless a variable names another: cargo takes
/// crates of a copy for those of the original, and would run these tests as the original's.
fn cargo(place: &Place, copy: &Place) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| place.root.join("target/workbook"), PathBuf::from);
    command.current_dir(&copy.root).arg("--locked").env("CARGO_TARGET_DIR", target);
    // These tests run for seconds: what counts is how long they take to compile. What `Cargo.toml` names stays as it is, but
    // for the crate whose kernels take longest.
    for option in ["profile.dev.opt-level=0", "profile.dev.package.flash-attention.opt-level=0"] {
        command.args(["--config", option]);
    }
    command
}

/// Package and test target, as a key.
fn key(test: &Test) -> (String, Option<String>) {
    (test.package.clone(), test.target.clone())
}

/// A compiled test target.
struct Program {
    executable: PathBuf,
    /// Where tests expect to run.
    folder: PathBuf,
}

/// Compiles the test targets of all exercises.
fn programs(
    place: &Place,
    switched: &Place,
    exercises: &[Exercise],
) -> anyhow::Result<HashMap<(String, Option<String>), Program>> {
    let mut targets = BTreeSet::new();
    for exercise in exercises {
        for test in exercise.tests(place)? {
            let target = test.target.with_context(|| format!("`{}` is a unit test", test.name))?;
            targets.insert(target);
        }
    }
    let mut command = cargo(place, switched);
    command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    for target in &targets {
        command.args(["--test", target]);
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "with exercises behind switches the tests do not compile");

    /// What cargo says of a thing that it has made; other lines have less.
    #[derive(Deserialize)]
    struct Made {
        manifest_path: Option<PathBuf>,
        target: Option<Target>,
        executable: Option<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    let mut programs = HashMap::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        if let Made {
            manifest_path: Some(manifest),
            target: Some(target),
            executable: Some(executable),
        } = serde_json::from_str(line)?
        {
            let package = package_name(&manifest).context("a test has a package")?;
            let folder = manifest.parent().context("a manifest lies in a folder")?.into();
            programs.insert((package, Some(target.name)), Program { executable, folder });
        }
    }
    Ok(programs)
}

/// What a test said of an exercise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It passes while the exercise is solved, and fails while it is open, by the exercise's own words.
    Proved,
    /// It fails though all is solved.
    FailsSolved,
    /// It passes while the exercise is open.
    PassesOpen,
    /// It fails while the exercise is open, but does not get to it.
    FailsElsewhere,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Proved => "passes solved, fails open",
            Verdict::FailsSolved => "FAILS although solved",
            Verdict::PassesOpen => "PASSES although open",
            Verdict::FailsElsewhere => "FAILS open, but elsewhere",
        })
    }
}

/// How a test fared, and what it printed when that was decided.
fn verdict(
    program: &Program,
    test: &Test,
    exercise: &Exercise,
) -> anyhow::Result<(Verdict, String)> {
    let (solved, said) = passes(program, test, None)?;
    if !solved {
        return Ok((Verdict::FailsSolved, said));
    }
    let (open, said) = passes(program, test, Some(&exercise.name))?;
    let found = match open {
        true => Verdict::PassesOpen,
        false if said.contains(&exercise.think) => Verdict::Proved,
        false => Verdict::FailsElsewhere,
    };
    Ok((found, said))
}

/// Whether a test passes, and all that it printed.
fn passes(program: &Program, test: &Test, open: Option<&str>) -> anyhow::Result<(bool, String)> {
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.folder).arg(&test.name).env_remove(SWITCH);
    // Tests of packages find their manifest's folder here, as cargo would have it.
    command.env("CARGO_MANIFEST_DIR", &program.folder);
    if let Some(name) = open {
        command.env(SWITCH, name);
    }
    let output = command.output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    for line in said.lines() {
        let Some((name, verdict)) =
            line.strip_prefix("test ").and_then(|line| line.split_once(" ... "))
        else {
            continue;
        };
        let name = name.strip_suffix(" - should panic").unwrap_or(name);
        if name.rsplit("::").next() == Some(&test.name) {
            match verdict {
                "ok" => return Ok((true, said)),
                "FAILED" => return Ok((false, said)),
                _ => {}
            }
        }
    }
    bail!("`{}` has no test `{}` that ran:\n{said}", program.executable.display(), test.name)
}
