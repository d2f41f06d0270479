//! One branch is kept, and another's rows.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&speculative::faults::WRONG_BRANCH)
}
