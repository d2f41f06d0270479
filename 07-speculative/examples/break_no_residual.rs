//! What replaces a refused token is drawn from the target.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&speculative::faults::NO_RESIDUAL)
}
