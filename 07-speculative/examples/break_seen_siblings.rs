//! Branches of a draft tree see each other.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&speculative::faults::SEEN_SIBLINGS)
}
