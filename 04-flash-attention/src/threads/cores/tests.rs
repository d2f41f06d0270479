//! Who is where is kept in mind, and threads are where they should be.

use super::*;

#[cfg(all(target_os = "linux", not(miri)))]
mod placed;

#[test]
fn a_core_is_shared_while_another_is_awake_on_it() {
    let cores = Cores::of(3);
    cores.put(0, 5);
    assert!(!cores.is_shared(0, 5), "with itself");
    cores.put(2, 5);
    assert!(cores.is_shared(0, 5) && cores.is_shared(2, 5) && !cores.is_shared(0, 4));
    cores.put(2, 5 | ASLEEP);
    assert!(!cores.is_shared(0, 5));
    assert!(!cores.is_shared(0, NONE), "threads that have not been seen");
}
