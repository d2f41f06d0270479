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
fn a_cache_that_cannot_undo_answers_as_if_each_question_were_the_first() {
    // With a prompt of 250 tokens, and a question longer than may be rolled back, the next one is
    // asked of the prompt read again.
    let Quiz { prompt, questions } = &material().quizzes[0];
    let Question { ask, answer } = &questions[0];
    let long = [&prompt[..60], ask].concat();
    let long = Question { ask: long, answer: answer.clone() };
    // The word that questions begin with: right behind the prompt, and not behind an answer.
    let begun = Question { ask: ask[..1].to_vec(), answer: ask[1..2].to_vec() };
    let quiz = |questions: &[&Question]| {
        let questions = questions.iter().map(|&question| question.clone()).collect();
        Quiz { prompt: prompt.clone(), questions }
    };
    let quizzes = vec![quiz(&[&long]), quiz(&[&begun]), quiz(&[&long, &begun])];
    let judge = Judge::new(&MODEL, Material { quizzes, ..material() }).unwrap();
    let four = methods()[2];
    assert_eq!(judge.judge(&four.make).unwrap().recall, [1.0, 1.0, 1.0]);
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
