//! Threads that go, are sent or are brought somewhere.

use super::super::*;
use crate::threads::Pool;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, mpsc};
use std::thread;

#[test]
fn a_thread_goes_where_it_may_and_may_then_go_on() {
    let allowed = numbers(&allowed_cores());
    let began = Instant::now();
    for &core in &allowed {
        // Other tests' threads may be on their way, too, and the system may move this one on.
        while system::current() as usize != core {
            assert!(began.elapsed() < Duration::from_secs(20), "core {core}");
            system::go(|free| free as usize == core);
        }
    }
    system::go(|_| false);
    assert_eq!(numbers(&allowed_cores()), allowed);
}

#[test]
fn threads_on_one_core_part() {
    let allowed = allowed_cores();
    if numbers(&allowed).len() < 2 {
        println!("NOT CHECKED: there is one core only");
        return;
    }
    const TRIES: usize = 20;
    let pool = Pool::new(2);
    let mut parted = 0;
    for _ in 0..TRIES {
        for cores in [only(core_of(0)), allowed] {
            pool.run(&|thread| {
                keep(0, &cores);
                // Time for the worker to begin.
                thread::sleep(Duration::from_millis(if thread == 0 { 2 } else { 0 }));
            });
        }
        // Who has just gone somewhere, or tried to, stays there for a while.
        thread::sleep(Duration::from_millis(15));
        let nowhere = usize::MAX;
        let (cores, caller) = ([nowhere; 2].map(AtomicUsize::new), thread::current().id());
        for _ in 0..10 {
            pool.run(&|part| {
                let began = Instant::now();
                let is_own = (part == 0) == (thread::current().id() == caller);
                while began.elapsed() < Duration::from_micros(100) {
                    if is_own {
                        cores[part].store(core_of(0), Ordering::Relaxed);
                    }
                }
            });
        }
        let [a, b] = cores.map(AtomicUsize::into_inner);
        parted += usize::from(a != b && b != nowhere);
    }
    // On a busy machine the system may bring them together again at any time.
    assert!(parted > TRIES * 3 / 4, "{parted} of {TRIES} times");
}

#[test]
fn a_worker_that_lost_its_core_is_brought_to_the_callers() {
    const TRIES: usize = 20;
    let allowed = allowed_cores();
    let [here, there, ..] = numbers(&allowed)[..] else {
        println!("NOT CHECKED: there is one core only");
        return;
    };
    let over = Arc::new(AtomicBool::new(false));
    let busy_on = |core| {
        let (over, (tell, told)) = (over.clone(), mpsc::channel());
        let busy = thread::spawn(move || {
            keep(0, &only(core));
            // SAFETY: it only gives a number.
            tell.send(unsafe { libc::gettid() }).unwrap();
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        (busy, told.recv().unwrap())
    };
    keep(0, &only(here));
    let (worker, id) = busy_on(there);
    // How often it is here after so long, in which the calling thread was about to sleep again and again.
    let brought = |long| {
        let is_brought = |_: &usize| {
            keep(id, &only(there));
            keep(id, &allowed);
            let began = Instant::now();
            loop {
                Cores::bring(&worker);
                let core = core_of(id);
                if core != there || began.elapsed() > long {
                    return core == here;
                }
            }
        };
        (0..TRIES).filter(is_brought).count()
    };
    let (once, long) = (Duration::ZERO, Duration::from_millis(10));
    // Other tests of this process may have its core for a while.
    let is_left_at_work = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(20));
        brought(once) < TRIES / 2
    });
    let others = [busy_on(there), busy_on(there)];
    let lost = brought(long);
    over.store(true, Ordering::Relaxed);
    for (busy, _) in others {
        busy.join().unwrap();
    }
    worker.join().unwrap();
    assert!(is_left_at_work);
    assert!(lost > TRIES / 2, "{lost} of {TRIES} times");
}

/// Cores that the calling thread may be on.
fn allowed_cores() -> libc::cpu_set_t {
    // SAFETY: sets of cores are plain bits, as large as is said; 0 is the calling thread.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed), 0);
        allowed
    }
}

/// The cores of a set.
fn numbers(cores: &libc::cpu_set_t) -> Vec<usize> {
    // SAFETY: numbers are below the size of a set.
    (0..libc::CPU_SETSIZE as usize)
        .filter(|&core| unsafe { libc::CPU_ISSET(core, cores) })
        .collect()
}

/// A set of one core.
fn only(core: usize) -> libc::cpu_set_t {
    // SAFETY: sets of cores are plain bits, and a core's number is below their size.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut one);
        one
    }
}

/// Keeps a thread, 0 for the calling one, to these cores.
fn keep(thread: libc::pid_t, cores: &libc::cpu_set_t) {
    // SAFETY: the set is as large as is said.
    assert_eq!(unsafe { libc::sched_setaffinity(thread, size_of_val(cores), cores) }, 0);
}

/// The core that a thread, 0 for the calling one, is on or waits for.
fn core_of(thread: libc::pid_t) -> usize {
    if thread == 0 {
        // SAFETY: it only gives a number.
        return unsafe { libc::sched_getcpu() } as usize;
    }
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    // The name in brackets is the second field, the core the 39th.
    stat.rsplit(')').next().unwrap().split_whitespace().nth(36).unwrap().parse().unwrap()
}
