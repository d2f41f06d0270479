//! Logits are those of the processor, and the same bits in any pieces and any company.

use crate::world::{
    ROOM, SEED, assert_near, config, fed, interpreter, on, on_device, right, rounded, text,
};
use cuda_executor::CudaExecutor;
use cuda_kernels::Interpreter;
use kv_cache::{CachedDecoder, CachedExecutor, KvCache};
use naive_decode::{
    Config, CpuExecutor, Decoder, Executor, LoadOptions, Logits, Model, NaiveAttention, Pass, Span,
    Visible, Want, dense, random_tensors,
};
use std::sync::Arc;

#[test]
fn logits_are_those_of_the_processor() {
    let (long, short) = (text(90), &text(40)[3..]);
    let mut executor = on_device(ROOM);
    // A prompt that is long, and one beside it.
    let pass = Pass {
        spans: vec![
            Span::new(2, 0, &long[..80], Want::Last),
            Span::new(0, 0, &short[..20], Want::All),
        ],
    };
    let found = executor.execute(&pass).unwrap();
    let mut wanted = right(&[(&long[..80], 1)]);
    wanted.extend(right(&[(&short[..20], 20)]));
    assert_near(&found, &wanted);
    // A step of each; one of them in several rows.
    let pass = Pass {
        spans: vec![
            Span::new(0, 20, &short[20..21], Want::All),
            Span::new(2, 80, &long[80..83], Want::All),
        ],
    };
    let found = executor.execute(&pass).unwrap();
    assert_near(&found, &right(&[(&short[..21], 1), (&long[..83], 3)]));
}

#[test]
fn a_text_has_the_same_bits_in_any_pieces() {
    // Longer than a split of attention, with the kernels for many rows and for few.
    let text = text(290);
    let pieces = fed(&[100, 101, 200, 250, 289, 290], &text);
    assert_eq!(fed(&[128, 256, 290], &text), pieces);
}

#[test]
fn a_sequence_has_the_same_bits_alone_and_among_others() {
    let (text, other) = (text(40), text(100));
    let mut executor = on_device(ROOM);
    let beside = Span::new(0, 0, &other[..60], Want::Nothing);
    let spans = vec![beside, Span::new(1, 0, &text[..39], Want::Nothing)];
    executor.execute(&Pass { spans }).unwrap();
    let spans = vec![
        Span::new(1, 39, &text[39..], Want::Last),
        Span::new(0, 60, &other[60..], Want::Nothing),
    ];
    let among = executor.execute(&Pass { spans }).unwrap();
    assert_eq!(among.into_raw_vec_and_offset().0, fed(&[40], &text));
}

#[test]
fn steps_and_guesses_have_the_same_bits_beside_a_prompt_of_many_rows() {
    let (text, other) = (text(290), text(100));
    for is_hopper in [false, true] {
        let mut executor = on(interpreter(is_hopper), ROOM).unwrap();
        for (start, end) in [(0, 128), (128, 256), (256, 289)] {
            let span = Span::new(1, start, &text[start..end], Want::Nothing);
            executor.execute(&Pass::one(span)).unwrap();
        }
        executor.execute(&Pass::one(Span::new(2, 0, &text[..30], Want::Nothing))).unwrap();
        let mut guesses = Span::new(2, 30, &[4, 5, 6], Want::All);
        guesses.positions = vec![30, 30, 31];
        guesses.sees[1] = Visible { range: 0..30, also: vec![31] };
        guesses.sees[2] = Visible { range: 0..30, also: vec![31, 32] };
        // The prompt's rows are first here and last on the device.
        let spans = vec![
            Span::new(0, 0, &other, Want::Last),
            guesses,
            Span::new(1, 289, &text[289..], Want::Last),
        ];
        let rows = executor.execute(&Pass { spans }).unwrap();
        let row = |row: usize| rows.row(row).to_vec();
        assert_eq!(row(0), fed(&[100], &other));
        let after = |guesses: &[u32]| fed(&[30 + guesses.len()], &[&text[..30], guesses].concat());
        assert_eq!(row(1), after(&[4]));
        // Rows across another branch are promised up to rounding, and come out exact in this case.
        assert_eq!(row(2), after(&[5]));
        assert_eq!(row(3), after(&[5, 6]));
        assert_eq!(row(4), fed(&[128, 256, 290], &text));
    }
}

#[test]
fn the_nodes_of_a_tree_see_their_ancestors_only() {
    let text = text(30);
    let mut executor = on_device(ROOM);
    executor.execute(&Pass::one(Span::new(0, 0, &text, Want::Nothing))).unwrap();
    // Two guesses after the text, and one after the second of them.
    let mut span = Span::new(0, 30, &[4, 5, 6], Want::All);
    span.positions = vec![30, 30, 31];
    span.sees[1] = Visible { range: 0..30, also: vec![31] };
    span.sees[2] = Visible { range: 0..30, also: vec![31, 32] };
    let found = executor.execute(&Pass::one(span)).unwrap();
    let after = |tokens: &[u32]| [&text[..], tokens].concat();
    assert_near(&found, &right(&[(&after(&[4]), 1), (&after(&[5, 6]), 2)]));
}

#[test]
fn a_decoder_says_what_the_processor_says() {
    let text = text(140); // two passes and a step
    let mut decoder = CachedDecoder::over(on_device(ROOM), Some(ROOM.rows)).unwrap();
    decoder.feed(&text[..139]).unwrap();
    let last = decoder.feed(&text[139..]).unwrap();
    let found = Logits::from_shape_vec((1, last.len()), last).unwrap();
    assert_near(&found, &right(&[(&text, 1)]));
    assert_eq!((decoder.rows(), decoder.kv_bytes_per_token()), (140, 2 * 2 * 64 * 2));
    assert!(decoder.feed(&[]).is_err() && decoder.feed(&[1; 181]).is_err());
}

#[test]
fn hidden_states_and_the_head_give_the_logits() {
    let text = text(70);
    let mut executor = on_device(ROOM);
    // More rows than the head takes at a time.
    let pass = |sequence| Pass::one(Span::new(sequence, 0, &text, Want::All));
    let whole = executor.execute(&pass(0)).unwrap();
    let hidden = executor.hidden(&pass(1)).unwrap();
    assert_eq!(hidden.dim(), (70, 72));
    assert_eq!(executor.cache().len(1), 70);
    assert!(executor.head(hidden.view()).unwrap() == whole);
    assert!(executor.head(hidden.slice(ndarray::s![.., ..64])).is_err());
}

#[test]
fn narrow_heads_are_those_of_the_processor() {
    let narrow = Config { head_dim: 24, heads: 2, ..config() };
    let options = LoadOptions::default();
    let model = Model::assemble(narrow.clone(), options, &rounded, &dense(options.isa)).unwrap();
    let model = Arc::new(model);
    let attention = NaiveAttention::new(model.isa);
    let text = text(70);
    let pass = Pass::one(Span::new(0, 0, &text, Want::All));
    let right = CpuExecutor { model: Arc::clone(&model), attention }.execute(&pass).unwrap();
    let right: Vec<Vec<f32>> = right.rows().into_iter().map(|row| row.to_vec()).collect();
    let (rope, tensors) = (&model.rope, random_tensors(SEED));
    let mut executor = CudaExecutor::new(Interpreter::new(), narrow, rope, &tensors, ROOM).unwrap();
    executor.cache_mut().open();
    assert_near(&executor.execute(&pass).unwrap(), &right);
}
