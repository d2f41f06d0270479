//! One prompt answered from another's cache.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&prefix_radix::faults::WEAK_HASH)
}
