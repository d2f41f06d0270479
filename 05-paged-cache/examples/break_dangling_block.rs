//! A block freed while a table still points at it.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&paged_cache::faults::DANGLING_BLOCK)
}
