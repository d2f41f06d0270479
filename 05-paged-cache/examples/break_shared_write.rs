//! A shared block written without a copy.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&paged_cache::faults::SHARED_WRITE)
}
