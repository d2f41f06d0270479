//! A preempted request finds its own blocks, and forgets its last words.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&prefix_radix::faults::PREEMPTED_HIT)
}
