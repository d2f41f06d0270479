//! A preempted request that loses its sampler's state.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&serving::faults::LOST_SAMPLER)
}
