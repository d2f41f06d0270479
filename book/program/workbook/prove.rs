//! The proof that a workbook is worth something: with all exercises open it compiles, each exercise that is open makes its
//! tests fail by what it says, and with all solved the same tests pass.
//!
//! Tests are compiled once, with every exercise behind a switch that a variable throws.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use super::cut::{Body, SWITCH};
use super::{Exercise, exercises, write_with};
use crate::place::Place;
use crate::verified::{Test, package_name};

/// How long a test may run. Those that there are run for seconds, but a function that is open may leave a loop without an end.
const LIMIT: Duration = Duration::from_secs(300);

/// Tests that run at a time: most have work for one core, and some for several.
const AT_A_TIME: usize = 2;

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
    let mut runs = Vec::new();
    for exercise in &exercises {
        for test in exercise.tests(place)? {
            let program = programs.get(&key(&test)).context("a test has a program")?;
            runs.push((exercise, test, program));
        }
    }
    let wrong = Mutex::new(0);
    let left = Mutex::new(runs.iter());
    // The lock is held for as long as it takes to have the next.
    let next = || left.lock().expect("nobody panics with this lock").next();
    let work = || -> anyhow::Result<()> {
        while let Some((exercise, test, program)) = next() {
            let (found, said) = verdict(program, test, exercise)?;
            let mut line = format!("{:24} {}::{}: {found}", exercise.name, test.package, test.name);
            if found != Verdict::Proved {
                line = format!("{line}\n{said}");
                *wrong.lock().expect("nobody panics with this lock") += 1;
            }
            println!("{line}");
        }
        Ok(())
    };
    let workers = thread::available_parallelism().map_or(1, |cores| cores.get().min(AT_A_TIME));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let ends = workers.into_iter().map(|worker| worker.join().expect("no worker panics"));
        ends.collect::<anyhow::Result<()>>()
    })?;
    let wrong = wrong.into_inner().expect("nobody panics with this lock");
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
    /// The paths of its tests.
    tests: Vec<String>,
}

impl Program {
    /// The command that runs one of its tests, with an exercise open or with all solved.
    fn command(&self, path: &str, open: Option<&str>) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).args([path, "--exact"]).env_remove(SWITCH);
        // Tests of packages find their manifest's folder here, as cargo would have it.
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        if let Some(name) = open {
            command.env(SWITCH, name);
        }
        command
    }

    /// The path of a test, of which the book knows the last name.
    fn path(&self, name: &str) -> anyhow::Result<&str> {
        let is = |path: &&String| path.rsplit("::").next() == Some(name);
        let found: Vec<_> = self.tests.iter().filter(is).collect();
        match found[..] {
            [path] => Ok(path),
            _ => bail!(
                "`{}` has {} tests `{name}`, and one is wanted",
                self.executable.display(),
                found.len()
            ),
        }
    }
}

/// The paths of a program's tests, as it lists them.
fn listed(executable: &Path) -> anyhow::Result<Vec<String>> {
    let output = Command::new(executable).args(["--list", "--format=terse"]).output()?;
    ensure!(output.status.success(), "`{}` does not list its tests", executable.display());
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
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
        kind: Vec<String>,
    }
    let mut programs = HashMap::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        if let Made {
            manifest_path: Some(manifest),
            target: Some(target),
            executable: Some(executable),
        } = serde_json::from_str(line)?
            && target.kind == ["test"]
        {
            let package =
                package_name(&fs::read_to_string(&manifest)?).context("a test has a package")?;
            let folder = manifest.parent().context("a manifest lies in a folder")?.into();
            let tests = listed(&executable)?;
            programs.insert((package, Some(target.name)), Program { executable, folder, tests });
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
    /// It still ran when its time was up, though all is solved.
    EndlessSolved,
    /// It still ran when its time was up, while the exercise was open.
    EndlessOpen,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Proved => "passes solved, fails open",
            Verdict::FailsSolved => "FAILS although solved",
            Verdict::PassesOpen => "PASSES although open",
            Verdict::FailsElsewhere => "FAILS open, but elsewhere",
            Verdict::EndlessSolved => "DOES NOT END although solved",
            Verdict::EndlessOpen => "DOES NOT END while open",
        })
    }
}

/// How a test fared, and what it printed when that was decided.
fn verdict(
    program: &Program,
    test: &Test,
    exercise: &Exercise,
) -> anyhow::Result<(Verdict, String)> {
    let path = program.path(&test.name)?;
    let (solved, said) = run(program.command(path, None), LIMIT)?;
    match solved {
        Some(true) => {}
        Some(false) => return Ok((Verdict::FailsSolved, said)),
        None => return Ok((Verdict::EndlessSolved, said)),
    }
    let (open, said) = run(program.command(path, Some(&exercise.name)), LIMIT)?;
    let found = match open {
        Some(true) => Verdict::PassesOpen,
        Some(false) if said.contains(&exercise.think) => Verdict::Proved,
        Some(false) => Verdict::FailsElsewhere,
        None => Verdict::EndlessOpen,
    };
    Ok((found, said))
}

/// Whether a test passes, if it ends in time, and all that it printed.
fn run(mut command: Command, limit: Duration) -> anyhow::Result<(Option<bool>, String)> {
    // A file takes whatever is written. A pipe would have to be emptied meanwhile.
    let mut printed = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(printed.try_clone()?).stderr(printed.try_clone()?);
    let began = Instant::now();
    let mut child = command.spawn()?;
    let passed = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status.success());
        }
        if began.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            break None;
        }
        thread::sleep(Duration::from_millis(20));
    };
    let mut said = Vec::new();
    printed.rewind()?;
    printed.read_to_end(&mut said)?;
    Ok((passed, String::from_utf8_lossy(&said).into_owned()))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_test_passes_or_fails_or_does_not_end() {
        let run = |script: &str, limit| run(shell(script), Duration::from_millis(limit)).unwrap();
        assert_eq!(run("echo a; echo b >&2", 60_000), (Some(true), "a\nb\n".into()));
        assert_eq!(run("echo a; exit 101", 60_000), (Some(false), "a\n".into()));
        // More than a pipe holds.
        let (passed, said) = run("head -c 1000000 /dev/zero", 60_000);
        assert_eq!((passed, said.len()), (Some(true), 1_000_000));
        let began = Instant::now();
        assert_eq!(run("exec sleep 60", 100), (None, String::new()));
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_test_is_found_by_its_last_name() {
        let tests = ["a::holds", "b::holds_too", "c::twice", "d::twice"].map(String::from).to_vec();
        let program = Program { executable: "x".into(), folder: "y".into(), tests };
        let path = |name: &str| program.path(name).map(str::to_owned).map_err(|e| e.to_string());
        assert_eq!(path("holds").unwrap(), "a::holds");
        assert!(path("twice").unwrap_err().contains("has 2 tests `twice`"));
        assert!(path("gone").unwrap_err().contains("has 0 tests `gone`"));
    }
}
