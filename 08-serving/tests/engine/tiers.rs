//! What leaves the pool comes back, from memory and after a restart, or is computed again: never anything else.

use crate::world::{
    Answer, Asked, Dice, assert_as_alone, assert_empty, crowd, engine, model, options, run, serve,
};
use flash_attention::tile_attention::KvType;
use naive_decode::Element;
use serving::engine::{Engine, EngineHandle, EngineOptions, Event, KvFile, Step};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Instant;

/// An engine with a file in a directory.
fn with_file(directory: &Path, pool_tokens: usize) -> EngineOptions {
    let directory = directory.to_owned();
    let kv_file = Some(KvFile { directory, bytes: 1 << 24, model: [3; 32] });
    EngineOptions { kv_file, ..options(pool_tokens) }
}

/// Runs until all that is to be in the file is there.
fn rest(engine: &mut Engine) {
    for _ in 0..10_000 {
        match engine.step().unwrap() {
            Step::Idle(None) => return,
            Step::Idle(Some(until)) => sleep(until.saturating_duration_since(Instant::now())),
            Step::Ran(_) => {}
        }
    }
    panic!("the engine saves for ever");
}

/// Hands requests in one after the other, so that each finds what those before it have left. Gives the tokens of
/// each, and how many of its prompt were known.
fn one_by_one(engine: &mut Engine, asked: &[Asked]) -> Vec<(Vec<u32>, usize)> {
    let answer = |asked: &Asked| {
        let answer = serve(engine, std::slice::from_ref(asked)).remove(0);
        assert_empty(engine);
        let cached = answer.usage().cached_tokens;
        (answer.tokens, cached)
    };
    asked.iter().map(answer).collect()
}

/// Long prompts that have nothing in common.
fn prompts(count: usize) -> Vec<Asked> {
    let mut dice = Dice(5);
    (0..count).map(|_| Asked::new(dice.tokens(45), 10)).collect()
}

/// The one file in a directory.
fn file_in(directory: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].path()
}

#[test]
fn after_a_restart_what_was_said_is_known() {
    let types = [Element::F32, Element::Bf16].map(KvType::from);
    for kept in types.into_iter().chain([KvType::Bf16Fast, KvType::Int8]) {
        let folder = tempfile::tempdir().unwrap();
        let start = || engine(EngineOptions { kept, ..with_file(folder.path(), 900) });
        let asked = prompts(6);
        let mut first = start();
        let before = one_by_one(&mut first, &asked);
        assert!(before.iter().all(|(_, cached)| *cached == 0));
        rest(&mut first);
        drop(first);
        let mut again = start();
        let after = one_by_one(&mut again, &asked);
        let counters = again.state().counters;
        assert_eq!((counters.tier_queries, counters.tier_hits), (6 * 45, 6 * 44));
        assert_eq!((counters.prefix_queries, counters.prefix_hits), (6 * 45, 0));
        drop(again);
        for ((tokens, _), (again, cached)) in before.iter().zip(&after) {
            assert_eq!(tokens, again, "{kept}");
            // Whole blocks of four, and never the whole prompt.
            assert_eq!(*cached, 44, "{kept}");
        }
        if let KvType::Exact(_) = kept {
            let answers = serve(&mut start(), &asked);
            assert_as_alone(&asked, &answers, "out of the file");
        }
    }
}

#[test]
fn an_engine_that_is_gone_in_the_middle_leaves_what_it_had_saved() {
    let folder = tempfile::tempdir().unwrap();
    let asked = crowd(8, 24);
    let mut known = 0;
    for steps in [1, 7, 30, 60, 90] {
        let mut engine = engine(with_file(folder.path(), 500));
        let submit = |asked: &Asked| Answer::of(engine.submit(asked.request()).unwrap());
        let mut answers: Vec<Answer> = asked.iter().map(submit).collect();
        for _ in 0..steps {
            engine.step().unwrap();
            answers.iter_mut().for_each(Answer::read);
        }
        engine.check_integrity().unwrap();
        drop((engine, answers));
        // Somebody else goes on with what there is.
        let mut engine = crate::world::engine(with_file(folder.path(), 500));
        let answers = serve(&mut engine, &asked);
        assert_as_alone(&asked, &answers, "after a break");
        known += answers.iter().map(|answer| answer.usage().cached_tokens).sum::<usize>();
    }
    assert!(known > 0);
}

#[test]
fn a_damaged_or_foreign_file_costs_time_and_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let asked = prompts(4);
    let expected: Vec<Vec<u32>> = asked.iter().map(Asked::alone).collect();
    let mut first = engine(with_file(folder.path(), 600));
    one_by_one(&mut first, &asked);
    rest(&mut first);
    drop(first);
    let path = file_in(folder.path());
    let whole = fs::read(&path).unwrap();
    let known = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let answers = one_by_one(&mut engine(with_file(folder.path(), 600)), &asked);
        let (tokens, cached): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
        assert_eq!(tokens, expected);
        cached.into_iter().sum::<usize>()
    };
    assert_eq!(known(&whole), 4 * 44);
    // A byte of every slot, the bytes of one slot's block, the header, the end.
    let mut everywhere = whole.clone();
    everywhere.iter_mut().skip(100).step_by(97).for_each(|byte| *byte ^= 1);
    assert_eq!(known(&everywhere), 0);
    let mut one = whole.clone();
    // Each text has thirteen whole blocks, and its end is saved first.
    let slot = (whole.len() - 88) / (4 * 13);
    one[88 + 12 * slot + 80 + 5] ^= 0x40;
    assert_eq!(known(&one), 3 * 44, "the first block of the first prompt");
    let mut header = whole.clone();
    header[30] ^= 1;
    assert_eq!(known(&header), 0);
    // Cut short by one byte more, the second text lacks its beginning.
    let two = 88 + 2 * 13 * slot;
    assert_eq!([two, two - 1].map(|length| known(&whole[..length]) / 44), [2, 1]);
    for bytes in [&b""[..], b"KVBLOCKS", b"notes", &[0; 200], &whole[..87]] {
        assert_eq!(known(bytes), 0);
    }
    // What was begun anew is filled again.
    assert!(fs::metadata(&path).unwrap().len() > 1_000);
}

#[test]
fn a_file_of_another_model_is_never_read() {
    let folder = tempfile::tempdir().unwrap();
    let asked = prompts(2);
    let mut first = engine(with_file(folder.path(), 600));
    one_by_one(&mut first, &asked);
    rest(&mut first);
    drop(first);
    let ours = file_in(folder.path());
    // Files that differ in what the model's files, types and blocks are have names of their own.
    let other_files = KvFile { directory: folder.path().into(), bytes: 1 << 24, model: [4; 32] };
    let others = [
        EngineOptions { kv_file: Some(other_files), ..options(600) },
        EngineOptions { kept: KvType::Int8, ..with_file(folder.path(), 600) },
        EngineOptions { block: 8, ..with_file(folder.path(), 600) },
    ];
    for (number, other) in others.into_iter().enumerate() {
        let mut other = engine(other);
        assert!(one_by_one(&mut other, &asked).iter().all(|(_, cached)| *cached == 0));
        rest(&mut other);
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 2 + number);
    }
    // Put in our place by hand, one is thrown away.
    let theirs: Vec<PathBuf> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    for theirs in theirs.iter().filter(|path| **path != ours) {
        fs::copy(theirs, &ours).unwrap();
        let answers = one_by_one(&mut engine(with_file(folder.path(), 600)), &asked);
        for ((tokens, cached), asked) in answers.iter().zip(&asked) {
            assert_eq!((tokens, *cached), (&asked.alone(), 0));
        }
    }
}

#[test]
fn memory_beside_the_pool_keeps_what_the_pool_has_no_room_for() {
    let asked = prompts(8);
    // The pool has room for two of them.
    let again = |host_bytes| {
        let mut engine = engine(EngineOptions { host_bytes, ..options(130) });
        one_by_one(&mut engine, &asked);
        let answers = one_by_one(&mut engine, &asked);
        for ((tokens, _), asked) in answers.iter().zip(&asked) {
            assert_eq!(*tokens, asked.alone());
        }
        let counters = engine.state().counters;
        let hits = (counters.prefix_hits + counters.tier_hits) as usize;
        assert_eq!(hits, answers.iter().map(|(_, cached)| cached).sum::<usize>());
        answers.iter().map(|(_, cached)| cached).sum::<usize>()
    };
    assert_eq!(again(0), 0);
    assert_eq!(again(1 << 20), 8 * 44);
}

#[test]
fn one_process_has_a_file_and_another_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let _first = engine(with_file(folder.path(), 200));
    let said = |options| Engine::new(model(), options).err().unwrap().to_string();
    assert!(said(with_file(folder.path(), 200)).contains("is in use"));
    let file = folder.path().join("a file");
    fs::write(&file, "").unwrap();
    assert!(said(with_file(&file, 200)).contains("a file"));
    let mut small = with_file(&folder.path().join("small"), 200);
    small.kv_file.as_mut().unwrap().bytes = 100;
    assert!(said(small).contains("budget of the file is 100"));
}

/// A file with room for less than one text, and one in a directory that goes away.
#[test]
fn a_file_that_is_too_small_or_lost_stops_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let asked = prompts(5);
    let mut small = with_file(folder.path(), 300);
    small.kv_file.as_mut().unwrap().bytes = 3_000;
    let mut engine = engine(small);
    let answers = serve(&mut engine, &asked);
    assert_as_alone(&asked, &answers, "a small file");
    rest(&mut engine);
    assert!(fs::metadata(file_in(folder.path())).unwrap().len() <= 3_000);
    drop(folder);
    let mut more: Vec<Answer> =
        asked.iter().map(|asked| Answer::of(engine.submit(asked.request()).unwrap())).collect();
    run(&mut engine, &mut more);
    assert_as_alone(&asked, &more, "a file that was deleted");
}

/// What is in the file once an engine is drained, in a directory of its own: the engine may still be ending.
fn drained(handle: EngineHandle, folder: &Path) -> tempfile::TempDir {
    handle.drain();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(handle.drained());
    let (file, copy) = (file_in(folder), tempfile::tempdir().unwrap());
    fs::copy(&file, copy.path().join(file.file_name().unwrap())).unwrap();
    copy
}

#[test]
fn draining_waits_until_everything_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let asked = Asked::new(Dice(2).tokens(180), 4);
    let handle = EngineHandle::start(engine(with_file(folder.path(), 2_000))).unwrap();
    let mut ticket = handle.submit(asked.request()).unwrap();
    while !matches!(ticket.blocking_recv().unwrap(), Event::Finished { .. }) {}
    let copy = drained(handle, folder.path());
    let (tokens, cached) =
        one_by_one(&mut engine(with_file(copy.path(), 2_000)), std::slice::from_ref(&asked))
            .remove(0);
    assert_eq!((tokens, cached), (asked.alone(), 176));
}

/// More texts than wait to be saved: those that do not wait any more are in the pool, and go with it.
#[test]
fn draining_puts_away_what_no_longer_waited_to_be_saved() {
    let folder = tempfile::tempdir().unwrap();
    let mut dice = Dice(9);
    let asked: Vec<Asked> = (0..300).map(|_| Asked::new(dice.tokens(5), 1)).collect();
    let mut first = engine(EngineOptions { queue: 300, ..with_file(folder.path(), 4_000) });
    let submit = |asked: &Asked| Answer::of(first.submit(asked.request()).unwrap());
    let mut answers: Vec<Answer> = asked.iter().map(submit).collect();
    while answers.iter().any(|answer| answer.end.is_none()) {
        first.step().unwrap();
        answers.iter_mut().for_each(Answer::read);
    }
    rest(&mut first);
    let copy = drained(EngineHandle::start(first).unwrap(), folder.path());
    let mut again = engine(with_file(copy.path(), 4_000));
    let answers = one_by_one(&mut again, &asked);
    assert!(answers.iter().all(|&(_, cached)| cached == 4));
}
