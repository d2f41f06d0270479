//! The judge: full caches are without fault, worse caches are found worse, and nothing is by chance.

use embedded_models::TARGET;
use gqa_mla::quality::{Judge, Material, Question, Quiz, full};
use gqa_mla::quantized::methods;
use naive_decode::{LoadOptions, Model, Tokenizer};
use std::sync::LazyLock;

static MODEL: LazyLock<Model> = LazyLock::new(|| {
    Model::embedded(TARGET.name, TARGET.config, TARGET.weights, LoadOptions::default()).unwrap()
});

fn material() -> Material {
    let tokenizer = Tokenizer::from_bytes("tokenizer.json", TARGET.tokenizer).unwrap();
    let mut material = Material::embedded(&tokenizer).unwrap();
    // A part, for speed.
    material.texts.truncate(1);
    material.texts[0].truncate(150);
    material.quizzes.truncate(1);
    material.quizzes.iter_mut().for_each(|quiz| quiz.questions.truncate(3));
    material
}

#[test]
fn the_full_cache_is_itself() {
    let quality = Judge::new(&MODEL, material()).unwrap().judge(&full).unwrap();
    assert_eq!((quality.divergence(), quality.agreement()), (0.0, 1.0));
    assert!(quality.recall() > 0.5, "the model recalls: {}", quality.recall());
    // A guess among 2,048 tokens costs ln 2048 = 7.6 nats.
    assert!(quality.perplexity() > 1.0 && quality.perplexity() < 20.0, "{}", quality.perplexity());
    assert_eq!(quality.bytes_per_token, 6 * 2 * (32 + 32) * 4);
    assert_eq!(quality.allocated_bytes, quality.bytes_per_token * 512);
}

#[test]
fn fewer_bits_are_worse_and_the_figures_are_the_same_again() {
    let judge = Judge::new(&MODEL, material()).unwrap();
    let of = |name: &str| {
        let method = methods().into_iter().find(|method| method.name == name).unwrap();
        judge.judge(&method.make).unwrap()
    };
    let (int8, four, two) = (of("INT8"), of("KIVI 4 bits"), of("KIVI 2 bits"));
    assert!(int8.divergence() > 0.0 && int8.divergence() < 0.01, "{}", int8.divergence());
    assert!(int8.agreement() > 0.95, "{}", int8.agreement());
    assert!(int8.divergence() < four.divergence());
    assert!(2.0 * four.divergence() < two.divergence());
    assert!(two.agreement() < 1.0);
    assert_eq!(of("INT8"), int8);
}

#[test]
fn a_cache_that_cannot_undo_is_asked_all_the_same() {
    // With a prompt of 250 tokens, and questions longer than may be rolled back, every question is
    // asked of the prompt read again.
    let mut material = material();
    let quiz = &material.quizzes[0];
    let long: Vec<u32> =
        quiz.prompt.iter().copied().take(60).chain(quiz.questions[0].ask.clone()).collect();
    let answer = quiz.questions[0].answer.clone();
    let questions = vec![Question { ask: long.clone(), answer: answer.clone() }; 2];
    material.quizzes = vec![Quiz { prompt: quiz.prompt.clone(), questions }];
    let judge = Judge::new(&MODEL, material).unwrap();
    let four = methods()[2];
    let recall = judge.judge(&four.make).unwrap().recall();
    // Both answers are the same, whichever it is.
    assert!(recall == 0.0 || recall == 1.0, "{recall}");
}

#[test]
fn material_that_judges_nothing_is_refused() {
    let refuses = |change: fn(&mut Material), words: &str| {
        let mut material = material();
        change(&mut material);
        assert_eq!(Judge::new(&MODEL, material).err().unwrap().to_string(), words);
    };
    refuses(|m| m.texts.clear(), "texts to judge by is 0, expected at least 1");
    refuses(|m| m.quizzes.clear(), "questions is 0, expected at least 1");
    refuses(|m| m.texts[0].truncate(1), "tokens of a text is 1, expected at least 2");
    refuses(
        |m| {
            m.quizzes[0].questions.clear();
            m.quizzes[0].prompt.truncate(9);
        },
        "questions about a prompt of 9 tokens is 0, expected at least 1",
    );
    refuses(
        |m| m.texts[0] = vec![1; 514],
        "the model's context holds 512 tokens; 513 were asked for",
    );
}
