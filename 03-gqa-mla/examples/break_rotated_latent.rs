//! Breaks absorption: RoPE turns the latent before it is cached.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&gqa_mla::faults::ROTATED_LATENT)
}
