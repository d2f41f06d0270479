//! Breaks the head: each group of queries reads the next group's keys.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&kv_cache::faults::WRONG_HEAD)
}
