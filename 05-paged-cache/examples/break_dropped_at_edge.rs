//! A preempted request that comes back one token short.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&paged_cache::faults::DROPPED_AT_EDGE)
}
