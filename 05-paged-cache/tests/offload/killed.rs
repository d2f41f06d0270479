//! A process that is killed while it writes, and one that the disk has no room for.

use super::{HEADER, content, get, key, open, options};
use paged_cache::offload::{Backlog, FileTier, Tier};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Set for the process that a test starts of itself: the file to write to.
const FILE: &str = "OFFLOAD_TEST_FILE";
const BLOCK: usize = 64 * 1024;
const SLOTS: usize = 8;
/// Names that are written over and over, more than there are slots.
const NAMES: u64 = 12;

/// This test program, to run one of its tests with a file to write to.
fn run(test: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(FILE, path);
    command
}

fn file_to_write() -> Option<PathBuf> {
    std::env::var_os(FILE).map(PathBuf::from)
}

/// A process that does not outlive the test, even one that fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_killed_writer_leaves_whole_blocks() {
    if let Some(path) = file_to_write() {
        let mut tier = FileTier::open(path, &options(BLOCK, SLOTS)).unwrap();
        let blocks: Vec<_> = (0..NAMES).map(|number| content(number, BLOCK)).collect();
        println!("\nwriting");
        for number in (0..NAMES).cycle() {
            tier.put(key(number), &blocks[number as usize]).unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let mut torn = 0;
    for round in 0..20 {
        let mut command = run("killed::a_killed_writer_leaves_whole_blocks", &path);
        let mut writer = Killed(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(writer.0.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "writing"), "the writer ended too early");
        let said = FileTier::open(&path, &options(BLOCK, SLOTS)).unwrap_err().to_string();
        assert!(said.contains("is in use"), "{said}");
        std::thread::sleep(Duration::from_micros(2_000 + 777 * round));
        drop(writer);

        let mut tier = open(&path, &options(BLOCK, SLOTS));
        assert!(tier.damaged() <= 1, "only one slot was being written");
        torn += tier.damaged();
        let mut kept = 0;
        for number in 0..NAMES {
            let Some(bytes) = get(&mut tier, key(number)) else { continue };
            assert!(bytes == content(number, BLOCK), "round {round}: wrong bytes");
            kept += 1;
        }
        assert_eq!(kept, tier.len());
        let length = std::fs::metadata(&path).unwrap().len() as usize;
        let slots = (length - HEADER).div_ceil(BLOCK + super::SLOT_HEADER);
        assert_eq!(kept, slots - tier.damaged(), "round {round}: a whole block was lost");
    }
    println!("{torn} of 20 kills tore a slot");
}

/// A process that is being started has a copy of every open file for a moment, and of its lock.
#[test]
fn a_closed_file_can_be_opened_while_other_threads_start_processes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            for _ in 0..100 {
                let mut command = run("a name that no test has", &path);
                assert!(command.stdout(Stdio::null()).status().unwrap().success());
            }
        });
        while !others.is_finished() {
            drop(open(&path, &options(16, 1)));
        }
    });
}

/// The shell's limit on the size of files stands for a full disk.
#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_and_loses_nothing_else() {
    let slots = 16;
    if let Some(path) = file_to_write() {
        let mut tier = FileTier::open(path, &options(BLOCK, slots)).unwrap();
        let refused = (0..slots as u64).find_map(|number| {
            let error = tier.put(key(number), &content(number, BLOCK)).err()?;
            Some((number, error.to_string()))
        });
        let (refused, said) = refused.expect("the limit is below the budget");
        assert!(said.contains("blocks: cannot be written: "), "{said}");
        assert!(refused >= 2 && !tier.contains(key(refused)));
        for number in 0..refused {
            assert_eq!(get(&mut tier, key(number)).unwrap(), content(number, BLOCK));
        }
        tier.check_integrity().unwrap();
        // There is no room for one more, and there is where a block has been.
        tier.put(key(refused), &content(refused, BLOCK)).unwrap_err();
        tier.remove(key(0)).unwrap();
        tier.put(key(refused), &content(refused, BLOCK)).unwrap();
        assert_eq!(get(&mut tier, key(refused)).unwrap(), content(refused, BLOCK));
        println!("\nrefused and carried on");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    run_on_a_full_disk("killed::a_full_disk_is_an_error_and_loses_nothing_else", &path);
    // What was written of the block that did not fit.
    assert_eq!(open(&path, &options(BLOCK, slots)).damaged(), 1);
}

/// As above, where a thread writes: it is known later, and nothing that is not written is taken for written.
#[cfg(unix)]
#[test]
fn a_full_disk_is_told_of_later_where_nobody_waits_for_it() {
    let slots = 16;
    if let Some(path) = file_to_write() {
        let mut tier = FileTier::open(path, &options(BLOCK, slots)).unwrap();
        tier = tier.writing_behind(slots * BLOCK).unwrap();
        let put = |tier: &mut FileTier, number| {
            tier.put(key(number), &content(number, BLOCK)).unwrap();
            until_written(tier);
            tier.settle()
        };
        let said: Vec<_> = (0..slots as u64).flat_map(|number| put(&mut tier, number)).collect();
        assert!(said.iter().all(|error| error.to_string().contains("blocks: cannot be written: ")));
        let kept = |tier: &mut FileTier| {
            let found = |&number: &u64| {
                let bytes = get(tier, key(number));
                bytes.inspect(|bytes| assert!(*bytes == content(number, BLOCK))).is_some()
            };
            (0..slots as u64).filter(found).collect::<Vec<_>>()
        };
        let first = kept(&mut tier);
        assert!((2..slots).contains(&first.len()), "{first:?}");
        assert_eq!(first.len() + said.len(), slots, "each that is not there is told of");
        tier.check_integrity().unwrap();
        assert_eq!((put(&mut tier, 99).len(), tier.contains(key(99))), (1, false));
        // There is room where a block has been.
        tier.remove(key(first[0])).unwrap();
        assert_eq!(put(&mut tier, 99).len(), 0);
        assert_eq!(get(&mut tier, key(99)).unwrap(), content(99, BLOCK));
        assert_eq!(kept(&mut tier), first[1..]);
        println!("\nrefused and carried on");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    run_on_a_full_disk("killed::a_full_disk_is_told_of_later_where_nobody_waits_for_it", &path);
}

#[cfg(unix)]
fn until_written(tier: &FileTier) {
    while tier.backlog() != Backlog::Nothing {
        std::thread::yield_now();
    }
}

/// Of a file without an empty slot, one block has to make room before it is known that the new one cannot be written.
#[cfg(unix)]
#[test]
fn a_full_disk_costs_no_more_than_the_block_that_makes_room() {
    // Those that lie below the shell's limit, and are used again.
    let (slots, low) = (16, 10);
    if let Some(path) = file_to_write() {
        let mut tier = open(&path, &options(BLOCK, slots));
        assert_eq!(tier.len(), slots);
        (0..low).for_each(|number| assert!(get(&mut tier, key(number)).is_some()));
        tier.put(key(99), &content(99, BLOCK)).unwrap_err();
        tier.check_integrity().unwrap();
        for number in (0..slots as u64).filter(|&number| number != low) {
            assert_eq!(get(&mut tier, key(number)).unwrap(), content(number, BLOCK));
        }
        assert!(!tier.contains(key(99)) && !tier.contains(key(low)));
        println!("\nrefused and carried on");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let mut tier = open(&path, &options(BLOCK, slots));
    (0..slots as u64).for_each(|number| tier.put(key(number), &content(number, BLOCK)).unwrap());
    drop(tier);
    run_on_a_full_disk("killed::a_full_disk_costs_no_more_than_the_block_that_makes_room", &path);
}

/// Runs a test's other half where files can be no longer than a quarter or half a megabyte: the shell has 512 or 1,024
/// bytes to a unit.
#[cfg(unix)]
fn run_on_a_full_disk(test: &str, path: &Path) {
    let test = run(test, path);
    let limited = "trap '' XFSZ; ulimit -f 512; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", limited])
        .arg(test.get_program())
        .args(test.get_args())
        .env(FILE, path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("refused and carried on"), "{said}{errors}");
}
