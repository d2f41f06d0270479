//! A half-written block brought back from a tier.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&paged_cache::faults::TORN_BLOCK)
}
