//! Steps that are recorded once and played again.

use crate::world::{ROOM, bits, on_device, text};
use cuda_executor::CudaExecutor;
use cuda_kernels::Interpreter;
use naive_decode::{Executor, Pass, Span, Want};

/// One token more of each of these sequences, which hold so many.
fn step(at: &[(usize, usize)]) -> Pass {
    let span = |&(sequence, held): &(usize, usize)| Span::new(sequence, held, &[7], Want::Last);
    Pass { spans: at.iter().map(span).collect() }
}

#[test]
fn a_step_that_is_played_again_gives_the_bits_of_one_that_is_launched() {
    let text = text(300);
    let run = |mut executor: CudaExecutor<Interpreter>| {
        let prompts = [(0, 255), (1, 20), (2, 3)];
        for (sequence, length) in prompts {
            for start in (0..length).step_by(100) {
                let tokens = &text[start..length.min(start + 100)];
                let span = Span::new(sequence, start, tokens, Want::Nothing);
                executor.execute(&Pass::one(span)).unwrap();
            }
        }
        // Three rows are filled up to four; the longest comes to a second split, and then a sequence is alone.
        let steps = [
            step(&[(0, 255), (1, 20), (2, 3)]),
            step(&[(2, 4), (0, 256), (1, 21)]),
            step(&[(1, 22), (2, 5), (0, 257)]),
            step(&[(0, 258)]),
            step(&[(1, 23)]),
        ];
        let logits = steps.map(|pass| bits(executor.execute(&pass).unwrap()));
        let gpu = executor.gpu();
        (logits, (gpu.recordings(), gpu.replays))
    };
    let (launched, none) = run(on_device(ROOM).without_graphs());
    let (played, counts) = run(on_device(ROOM));
    assert!(launched == played);
    assert_eq!(none, (0, 0));
    // Of four rows with one split and with two, of one row with two and with one.
    assert_eq!(counts, (4, 5));
}
