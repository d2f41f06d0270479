//! Every part once, whoever calls, whatever the parts do.

use super::*;
use crate::kernels::LINE;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Fewer rounds where every memory access is checked.
const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn every_part_runs_once_in_every_region() {
    for threads in [0, 1, 2, 3, 5] {
        let pool = Pool::new(threads);
        assert_eq!(pool.threads(), threads.max(1));
        let mut counts = vec![0u32; pool.threads()];
        for round in 1..=ROUNDS as u32 / 4 {
            // Plain memory, written in one region and read in the next: the counters must order it.
            let cells = Disjoint::new(&mut counts);
            pool.run(&|thread| {
                // SAFETY: each thread has its own cell.
                let cell = unsafe { cells.part(thread..thread + 1) };
                cell[0] += 1;
            });
            assert!(counts.iter().all(|&count| count == round), "{counts:?} in round {round}");
        }
    }
}

#[test]
fn a_pool_has_as_many_threads_as_the_system_gives() {
    for given in 0..5 {
        let mut left = given;
        let pool = Pool::begin(4, |builder, work| {
            left = usize::checked_sub(left, 1).ok_or(io::ErrorKind::WouldBlock)?;
            builder.spawn(work)
        });
        assert_eq!(pool.threads(), 1 + given.min(3));
        for _ in 0..10 {
            let mut items = [usize::MAX; 6];
            pool.run_chunks(&mut items, 1, &|first, items| {
                (first..).zip(items).for_each(|(i, item)| *item = i);
            });
            assert_eq!(items, [0, 1, 2, 3, 4, 5], "{given} given");
        }
    }
}

/// Other programs may have its core for longer than the whole region takes.
#[test]
fn a_part_that_its_thread_does_not_begin_is_the_callers() {
    let long = Duration::from_secs(20);
    let (open, gate) = mpsc::channel();
    let mut gate = Some(gate);
    let pool = Pool::begin(2, |builder, work| {
        let gate = gate.take().expect("one worker");
        builder.spawn(move || {
            _ = gate.recv_timeout(long);
            work();
        })
    });
    let weights = [[0u8; LINE]; 2];
    let done_by_caller = || {
        let caller = thread::current().id();
        let is_callers = [false; 2].map(AtomicBool::new);
        pool.run(&|part| {
            is_callers[part].store(thread::current().id() == caller, Ordering::Relaxed);
            ahead::goes_on_at(weights[part].as_ptr());
            // A worker that is there has begun before this is over.
            thread::sleep(Duration::from_millis(if part == 0 { 2 } else { 0 }));
        });
        is_callers.map(AtomicBool::into_inner)
    };
    for _ in 0..3 {
        assert_eq!(done_by_caller(), [true, true]);
        assert_eq!(ahead::next().0, weights[0].as_ptr(), "its own part's next weights");
    }
    open.send(()).unwrap();
    let began = Instant::now();
    while done_by_caller() != [true, false] {
        assert!(began.elapsed() < long, "the worker does no part once it is there");
    }
}

#[test]
fn threads_that_fell_asleep_wake() {
    let pool = Pool::new(3);
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(5));
        let ran = AtomicUsize::new(0);
        pool.run(&|thread| {
            // Now one, now the other side sleeps while it waits for the slower one.
            if thread == 1 {
                thread::sleep(Duration::from_millis(3));
            }
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.into_inner(), 3);
    }
}

#[test]
fn a_busy_pool_lets_the_caller_do_it_all() {
    let pool = Pool::new(2);
    let inner = AtomicUsize::new(0);
    let count = |counter: &AtomicUsize, thread| {
        counter.fetch_add(thread + 1, Ordering::Relaxed);
    };
    pool.run(&|_| pool.run(&|thread| count(&inner, thread)));
    assert_eq!(inner.into_inner(), 2 * (1 + 2));

    let sum = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..ROUNDS / 20 {
                    pool.run(&|thread| count(&sum, thread));
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), 4 * (ROUNDS / 20) * 3);
}

#[test]
fn a_panic_reaches_the_caller_after_the_others_are_done() {
    let pool = Pool::new(3);
    for guilty in 0..3 {
        let ran = AtomicUsize::new(0);
        let said = catch_unwind(AssertUnwindSafe(|| {
            pool.run(&|thread| {
                ran.fetch_add(1, Ordering::Relaxed);
                assert!(thread != guilty, "part {thread} broke");
            });
        }));
        let said = said.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(*said, format!("part {guilty} broke"));
        assert_eq!(ran.load(Ordering::Relaxed), 3);
        let mut after = [0; 3];
        pool.run_chunks(&mut after, 1, &|first, part| part[0] = first);
        assert_eq!(after, [0, 1, 2], "the pool works on");
    }
}

/// What its destructor does must not keep others from being waited for.
#[test]
fn what_all_parts_but_the_first_said_is_left_alone() {
    struct Said;
    impl Drop for Said {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let pool = Pool::new(3);
    for _ in 0..10 {
        let said = catch_unwind(AssertUnwindSafe(|| pool.run(&|_| std::panic::panic_any(Said))));
        std::mem::forget(said.unwrap_err().downcast::<Said>().unwrap());
    }
}

#[test]
fn chunks_are_shared_out_whole_and_in_order() {
    for (length, chunk) in [(0, 1), (1, 1), (7, 2), (10, 5), (3, 8), (64, 3)] {
        let pool = Pool::new(3);
        let mut items = vec![usize::MAX; length];
        pool.run_chunks(&mut items, chunk, &|first, part| {
            part.iter_mut().enumerate().for_each(|(i, item)| *item = first + i / chunk);
        });
        let expected: Vec<usize> = (0..length).map(|i| i / chunk).collect();
        assert_eq!(items, expected);
    }
    let shares: Vec<_> = (0..4).map(|thread| share(10, 4, thread)).collect();
    assert_eq!(shares, [0..2, 2..5, 5..7, 7..10]);
}

#[test]
fn rows_are_shared_out_whole_and_each_once() {
    for (rows, width, together) in
        [(0, 3, 24), (1, 1, 1), (11, 2, 4), (30, 2, 12), (97, 3, 48), (400, 1, 50)]
    {
        for threads in 1..5 {
            let mut items = vec![usize::MAX; rows * width];
            Pool::new(threads).run_rows(&mut items, width, together, &|mine, items| {
                assert!(mine.len() <= together.next_multiple_of(12) && !mine.is_empty());
                for (row, items) in mine.zip(items.chunks_exact_mut(width)) {
                    assert!(items.iter().all(|&item| item == usize::MAX), "row {row} twice");
                    items.fill(row);
                }
            });
            let expected: Vec<usize> = (0..rows * width).map(|i| i / width).collect();
            assert_eq!(items, expected, "{threads} threads");
        }
    }
}

#[test]
fn matrices_that_are_made_together_have_their_own_rows() {
    for (rows, threads) in [(0, 2), (1, 3), (11, 4), (97, 1), (97, 3)] {
        let pool = Pool::new(threads);
        let [a, b] = pool.make_rows(rows, [2, 3], 12, &|mine, [a, b]| {
            for row in mine {
                a.add(&[row as f32; 2]);
                b.add(&[0.5 + row as f32; 3])[0] = -1.0;
            }
        });
        let expected: Vec<f32> = (0..rows).flat_map(|row| [row as f32; 2]).collect();
        assert_eq!(a, expected);
        let expected = (0..rows).flat_map(|row| [-1.0, 0.5 + row as f32, 0.5 + row as f32]);
        assert_eq!(b, expected.collect::<Vec<f32>>());
    }
}

#[test]
#[should_panic = "all numbers of the rows"]
fn rows_that_are_not_filled_are_refused() {
    Pool::new(1).make_rows(3, [2, 1], 12, &|mine, [a, _]| mine.for_each(|_| _ = a.add(&[0.0; 2])));
}

/// Cut up among threads that are not there, a kernel would have fewer rows at once.
#[test]
fn inside_a_region_one_thread_takes_all_rows_together() {
    let (pool, seen) = (Pool::new(3), Mutex::new(Vec::new()));
    pool.run(&|thread| {
        if thread == 1 {
            assert!(pool.shares_rows(1, usize::MAX), "all rows, and all outputs");
            let take = |mine: Range<usize>, _: &mut [u8]| seen.lock().unwrap().push(mine);
            pool.run_rows(&mut [0; 60], 1, 48, &take);
        }
    });
    assert_eq!(*seen.lock().unwrap(), [0..48, 48..60]);
    assert!(!pool.shares_rows(14, 0) && pool.shares_rows(15, 0) && !pool.shares_rows(15, 2 << 20));
}

/// Time on a core that the process has spent, where the system says so.
#[cfg(all(target_os = "linux", not(miri)))]
fn processor_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_pool_that_waits_burns_no_core() {
    const IT_WAITED: &str = "the pool has waited";
    // Other tests of this process run beside this one, so look at a fresh process.
    if std::env::var_os("POOL_WAITS_HERE").is_none() {
        let own = std::env::current_exe().unwrap();
        let test = "threads::tests::a_pool_that_waits_burns_no_core";
        let child = std::process::Command::new(own)
            .args(["--exact", test, "--test-threads=1", "--nocapture"])
            .env("POOL_WAITS_HERE", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        // Without the line, no test of this name has run.
        assert!(child.status.success() && said.contains(IT_WAITED), "{said}");
        return;
    }
    let pool = Pool::new(4);
    pool.run(&|_| ());
    thread::sleep(Duration::from_millis(20));
    let (before, began) = (processor_ticks(), Instant::now());
    thread::sleep(Duration::from_millis(400));
    let spent = processor_ticks() - before;
    // A tick is a hundredth of a second: three spinning threads would spend up to 120 of them.
    assert!(spent <= 4, "{spent} ticks in {:?}", began.elapsed());
    println!("{IT_WAITED}");
}

#[test]
fn each_item_is_taken_once_whoever_is_free() {
    for threads in [1, 3] {
        let pool = Pool::new(threads);
        for count in [0, 1, 2, 7, 100] {
            let mut items: Vec<(usize, u32)> = (0..count).map(|i| (i, 0)).collect();
            pool.run_each(&mut items, &|(i, taken)| {
                // One that takes long leaves the others to whoever is free.
                if *i == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                *taken += 1;
            });
            assert!(items.iter().enumerate().all(|(i, item)| *item == (i, 1)), "{items:?}");
        }
    }
}
