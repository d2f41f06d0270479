//! Every rung against the oracle.

use crate::judge::{Feed, Judge};
use crate::models::{CONTEXT, SHAPES, encode, noise, target};
use naive_decode::{
    Element, Isa, NAIVE, Request, Rung, Sampler, Sampling, Settings, Step, generate,
};

const THREADS: [usize; 3] = [1, 2, 3];

/// Prefill chunks: a token, an odd few, a multiple of everything, one past attention's split, all.
const CHUNKS: [Option<usize>; 5] = [Some(1), Some(7), Some(64), Some(513), None];

/// Every rung but the naive one, whose own equality is `naive.rs`'s to prove: it is too slow here.
pub(crate) fn remembering() -> impl Iterator<Item = Rung> {
    serving::rungs().into_iter().filter(|rung| rung.change != NAIVE.change)
}

/// The naive rung has no chunks: it runs everything again in any case.
fn chunks(rung: &Rung) -> &'static [Option<usize>] {
    if rung.change == NAIVE.change { &CHUNKS[4..] } else { &CHUNKS }
}

pub(crate) fn prompts() -> [(&'static str, Vec<u32>); 4] {
    let tale =
        "The ferryman rowed from one bank to the other and told each traveller of the last. ";
    let mut long = encode(&tale.repeat(40));
    long.truncate(600);
    assert!(long.len() == 600, "more than one split of 512 positions");
    [
        ("a single token", encode("Once")[..1].to_vec()),
        ("a short prompt", encode("Once upon a time there was a fox who")),
        ("a prompt that is not ASCII", encode("Zürich — 東京, Łódź; ¿cuánto? 👩‍🚀🦊 Ἀθῆναι")),
        ("a prompt past one split", long),
    ]
}

#[test]
fn every_rung_on_every_prompt_thread_count_and_chunk() {
    let model = target(Isa::best());
    for (name, prompt) in prompts() {
        let tokens = [prompt.as_slice(), &noise(4, model.config.vocab_size)].concat();
        let judge = Judge::new(model.clone(), tokens);
        for rung in serving::rungs() {
            for threads in THREADS {
                for &prefill_chunk in chunks(&rung) {
                    let prompt = prompt.len();
                    let feed = Feed { prompt, prefill_chunk, threads, ..Feed::new(name, &model) };
                    judge.check(&rung, feed);
                }
            }
        }
    }
}

#[test]
fn every_rung_at_every_step_past_two_splits() {
    let model = target(Isa::best());
    let judge = Judge::new(model.clone(), noise(CONTEXT, model.config.vocab_size));
    for rung in remembering() {
        judge.check(&rung, Feed::new("the target", &model));
    }
}

#[test]
fn every_rung_on_every_shape_element_and_chunk() {
    for shape in SHAPES {
        for element in [Element::F32, Element::Bf16, Element::F16] {
            let model = shape.model(Isa::best(), element);
            let judge = Judge::new(model.clone(), noise(560, shape.vocab));
            let name = format!("{shape:?}, {element:?}");
            for rung in remembering() {
                for &prefill_chunk in chunks(&rung) {
                    let feed = Feed { prompt: 550, prefill_chunk, ..Feed::new(&name, &model) };
                    judge.check(&rung, feed);
                }
                // Fed in pieces, the rung shows its logits inside the prompt too.
                for piece in [7, 64] {
                    let feed = Feed { prompt: 550, piece, ..Feed::new(&name, &model) };
                    judge.check(&rung, feed);
                }
            }
        }
    }
}

#[test]
fn every_rung_on_every_instruction_set() {
    // Judged by the plainest code there is, which is slow: short texts, small models.
    for shape in SHAPES {
        for element in [Element::F32, Element::Bf16] {
            let judge = Judge::new(shape.model(Isa::SCALAR, element), noise(60, shape.vocab));
            for isa in Isa::available() {
                let model = shape.model(isa, element);
                let name = format!("{shape:?}, {element:?}");
                for rung in remembering() {
                    for threads in THREADS {
                        let feed =
                            Feed { prompt: 50, piece: 16, threads, ..Feed::new(&name, &model) };
                        judge.check(&rung, feed);
                    }
                }
            }
        }
    }
}

#[test]
fn every_instruction_set_past_one_split() {
    let shape = SHAPES[1];
    let judge = Judge::new(shape.model(Isa::SCALAR, Element::F32), noise(540, shape.vocab));
    for isa in Isa::available() {
        let model = shape.model(isa, Element::F32);
        for rung in remembering() {
            judge.check(&rung, Feed { prompt: 500, piece: 100, ..Feed::new("grouped", &model) });
        }
    }
}

#[test]
fn every_rung_speaks_the_same_text() {
    let model = target(Isa::best());
    let request =
        Request { prompt: encode("In the morning the fox"), tokens: 40, end_tokens: vec![] };
    let speak = |rung: &Rung| -> Vec<(u32, Vec<u32>)> {
        let settings = Settings { capacity: 100, prefill_chunk: Some(3), threads: None };
        let mut decoder = (rung.start)(model.clone(), settings).unwrap();
        let greedy = Sampler::new(Sampling::default()).unwrap();
        let steps = generate(decoder.as_mut(), greedy, request.clone()).unwrap();
        let bits = |step: Step| (step.token, step.logits.iter().map(|v| v.to_bits()).collect());
        steps.map(|step| bits(step.unwrap())).collect()
    };
    let expected = speak(&NAIVE);
    assert_eq!(expected.len(), 40);
    for rung in remembering() {
        assert!(speak(&rung) == expected, "rung \"{}\" says something else", rung.change);
    }
}
