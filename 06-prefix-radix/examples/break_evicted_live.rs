//! A prefix in use is evicted.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&prefix_radix::faults::EVICTED_LIVE)
}
