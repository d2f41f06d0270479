//! Runs: everything adds up, and what ought to be slower is.

use crate::world::{alike, deployment, mixed, model, with_kv};
use naive_decode::roofline::{ElementBytes, Rows, published};
use serving::engine::policy::{Budget, StaticBatches};
use serving::load::sizes::{Size, Sizes, Spread};
use serving::simulator::{Deployment, SpanWork, Storage, Workload, simulate};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn every_request_is_served_and_every_token_counted() {
    for policy in ["continuous", "static"] {
        let mut deployment = deployment("llama-3-8b", "h100", 1);
        if policy == "static" {
            deployment.policy = Arc::new(StaticBatches);
        }
        let load = mixed(200, Some(10.0));
        let outcome = simulate(&deployment, &load).unwrap();
        assert_eq!(outcome.policy, policy);
        assert_eq!(outcome.requests.len(), 200);
        let asked = |of: fn(&Size) -> usize| load.sizes.iter().map(of).sum::<usize>();
        assert_eq!(outcome.prompt_tokens, asked(|size| size.prompt));
        assert_eq!(outcome.generated_tokens, asked(|size| size.answer));
        for request in &outcome.requests {
            assert!(request.came <= request.started);
            assert!(request.started < request.first_token);
            assert!(request.first_token <= request.finished);
        }
        // Every token is run once, but the last of each answer.
        let rows = outcome.rows_per_pass * outcome.passes as f64;
        let tokens = outcome.prompt_tokens + outcome.generated_tokens - 200;
        assert_eq!(outcome.preemptions, 0);
        assert!((rows - tokens as f64).abs() < 1e-3, "{rows} rows for {tokens} tokens");
    }
}

#[test]
fn a_pool_that_is_too_small_costs_time_and_never_memory() {
    let plenty = simulate(&deployment("llama-3-8b", "h100", 1), &mixed(100, None)).unwrap();
    let tight = Deployment { pool_tokens: Some(4096), ..deployment("llama-3-8b", "h100", 1) };
    let outcome = simulate(&tight, &mixed(100, None)).unwrap();
    assert!(outcome.preemptions > 0 && plenty.preemptions == 0);
    assert_eq!(outcome.generated_tokens, plenty.generated_tokens);
    assert!(outcome.memory.peak_kv <= outcome.memory.pool);
    assert!(outcome.memory.peak_kv > 0.9 * outcome.memory.pool, "it was full");
    assert_eq!(outcome.memory.pool, 4096.0 * tight.model.kv_bytes_per_token());
    assert!(outcome.seconds > plenty.seconds);
    assert!(
        outcome.rows_per_pass * outcome.passes as f64 > plenty.rows_per_pass * plenty.passes as f64
    );
}

#[test]
fn a_window_needs_fewer_blocks() {
    let load = alike(8, 3000, 500);
    let whole = deployment("llama-3-8b", "h100", 1);
    let storage = Storage { window: Some(512), ..Storage::BF16 };
    let windowed = Deployment { model: model("llama-3-8b", storage), ..whole.clone() };
    let [whole, windowed] = [whole, windowed].map(|d| simulate(&d, &load).unwrap());
    // A window, a chunk of the prompt, and a block that is not yet behind it.
    let most = 8.0 * (512.0 + 256.0 + 16.0);
    let each = model("llama-3-8b", storage).kv_bytes_per_token();
    assert!(windowed.memory.peak_kv <= most * each, "{}", windowed.memory.peak_kv / each);
    assert!(whole.memory.peak_kv > 3.0 * windowed.memory.peak_kv);
    assert!(windowed.seconds < whole.seconds, "there is less to read");
}

#[test]
fn first_tokens_wait_once_more_come_than_can_be_served() {
    let deployment = deployment("llama-3-8b", "h100", 1);
    let all_at_once = simulate(&deployment, &mixed(400, None)).unwrap();
    let capacity = all_at_once.requests_per_second;
    let at = |share: f64| simulate(&deployment, &mixed(400, Some(share * capacity))).unwrap();
    let waits: Vec<f64> = [0.25, 0.5, 2.0, 4.0].map(|share| at(share).ttft.p50).into();
    assert!(waits.is_sorted(), "{waits:?}");
    assert!(waits[1] < 3.0 * waits[0], "below it hardly: {waits:?}");
    assert!(waits[2] > 10.0 * waits[1], "beyond it without end: {waits:?}");
    // And no more is served than can be.
    assert!((at(4.0).tokens_per_second / all_at_once.tokens_per_second - 1.0).abs() < 0.1);
}

#[test]
fn static_batches_are_slower_where_lengths_differ_and_only_there() {
    let continuous = deployment("llama-3-8b", "h100", 1);
    let batches = Deployment { policy: Arc::new(StaticBatches), ..continuous.clone() };
    let both = |load: &Workload| {
        [&batches, &continuous].map(|way| simulate(way, load).unwrap().tokens_per_second)
    };
    let [a_batch, anybody] = both(&mixed(256, None));
    assert!(anybody > 1.5 * a_batch, "{anybody} and {a_batch} tokens a second");
    let [a_batch, anybody] = both(&alike(256, 8, 100));
    assert!((anybody / a_batch - 1.0).abs() < 0.01, "{anybody} and {a_batch} tokens a second");
}

/// What the book's page asks its readers to try.
#[test]
fn too_low_a_limit_on_who_runs_makes_everybody_wait() {
    let wait = |per_second, running| {
        let mut deployment = deployment("llama-3-8b", "h100", 1);
        deployment.budget = Budget { rows: 512, running };
        let sizes = Sizes {
            requests: 200,
            per_second: Some(per_second),
            prompt_tokens: 500,
            answer_tokens: 200,
            spread: Spread::Exponential,
            seed: 1,
        };
        let sizes = sizes.draw(8192).unwrap();
        let load = Workload { sizes, clients: None, seed: 1 };
        simulate(&deployment, &load).unwrap().ttft.p95
    };
    let (quiet, busy, shared) = (wait(10.0, 64), wait(100.0, 64), wait(100.0, 256));
    assert!(busy > 20.0 * quiet, "{busy} and {quiet} s");
    assert!(shared < 0.2 * busy, "{shared} and {busy} s");
}

#[test]
fn clients_ask_again_when_they_have_their_answer() {
    let deployment = deployment("llama-3-8b", "h100", 1);
    let with = |clients| {
        let load = Workload { clients: Some(clients), ..mixed(64, None) };
        simulate(&deployment, &load).unwrap()
    };
    let (one, eight) = (with(1), with(8));
    assert!(one.requests_per_pass < 1.0 + 1e-9);
    assert!((5.0..=8.0).contains(&eight.requests_per_pass));
    assert!(eight.tokens_per_second > 4.0 * one.tokens_per_second, "batches are nearly free");
    assert!(one.busy > 0.999);
}

#[test]
fn a_step_takes_what_the_roofline_says() {
    // All alike and side by side: the run's time per token is the roofline's step in the middle of the answers.
    let mut deployment = deployment("llama-2-13b", "h100", 3);
    deployment.budget = Budget { rows: 1 << 16, running: 64 }; // all prompts in the first pass
    let outcome = simulate(&deployment, &alike(64, 896, 256)).unwrap();
    let step = deployment.decode_step(64, 1024).seconds;
    assert!((outcome.tpot.p50 / step - 1.0).abs() < 0.02, "{} and {step}", outcome.tpot.p50);
}

#[test]
fn a_pass_comes_to_what_rung_01_counts() {
    let shape = published("llama-2-70b").unwrap().shape;
    let counted = model("llama-2-70b", Storage::BF16);
    for (new, cached) in [(1, 4095), (512, 0), (100, 900)] {
        let bytes = ElementBytes { activation: 0, ..ElementBytes::BF16 };
        let expected = shape.forward(Rows { new, cached, logits: 1 }, bytes);
        let work = counted.work([SpanWork { cached, rows: new, logits: 1 }]);
        assert_eq!(work.flops as u64, expected.flops);
        assert_eq!(work.bytes as u64, expected.bytes());
    }
}

#[test]
fn rows_look_back_no_further_than_a_window() {
    let counted = |window| model("llama-2-7b", Storage { window, ..Storage::BF16 });
    for (cached, rows) in [(0, 5), (0, 300), (90, 30), (99, 1), (100, 1), (500, 64)] {
        let span = SpanWork { cached, rows, logits: 0 };
        let work = |window| counted(window).work([span]);
        let pairs = (cached..cached + rows).map(|at| (at + 1).min(100)).sum::<usize>() as f64;
        let [whole, windowed] = [None, Some(100)].map(work);
        let found = windowed.decode_pairs + windowed.prefill_pairs;
        assert!((found - pairs).abs() < 1e-6, "{span:?}: {found} pairs, not {pairs}");
        // Tokens that at least one row sees.
        let unseen = (cached + 1).saturating_sub(100) as f64;
        let fewer = unseen * counted(None).kv_bytes_per_token();
        assert!((whole.bytes - windowed.bytes - fewer).abs() < 1.0, "{span:?}");
    }
}

#[test]
fn kv_methods_keep_what_rung_03_says() {
    let per_token = |name, method| model(name, with_kv(method)).kv_bytes_per_token();
    for model in gqa_mla::fit::PUBLISHED {
        let Some(shape) = published(&model.name.to_lowercase().replace("-v0.1", "")) else {
            continue;
        };
        assert_eq!(model.parameters, shape.shape.parameters(), "{}", model.name);
        assert_eq!(model.window, shape.window, "{}", model.name);
        assert_eq!(model.trained_context, shape.context, "{}", model.name);
        assert_eq!(
            per_token(shape.name, "model"),
            model.kv_bytes_per_token(16.0),
            "{}",
            model.name
        );
    }
    assert_eq!(per_token("llama-2-70b", "mha"), 8.0 * per_token("llama-2-70b", "gqa:8"));
    assert_eq!(per_token("llama-2-70b", "mqa"), per_token("llama-2-70b", "gqa:1"));
    assert_eq!(per_token("llama-2-70b", "mla"), 80.0 * 576.0 * 2.0);
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let good = || deployment("llama-3-8b", "h100", 1);
    let said = |deployment: Deployment, load: Workload| {
        simulate(&deployment, &load).unwrap_err().to_string()
    };
    let one = || alike(1, 10, 10);
    let weights = said(deployment("llama-2-70b", "h100", 1), one());
    assert!(weights.contains("138.0 GB") && weights.contains("more cards"), "{weights}");
    let mut budget = good();
    budget.budget = Budget { rows: 8, running: 16 };
    assert!(said(budget, one()).contains("rows of a pass is 8, expected 16 to"));
    let mut budget = good();
    budget.budget.running = 0;
    assert!(said(budget, one()).contains("requests that run at once is 0"));
    let pool = Deployment { pool_tokens: Some(1 << 40), ..good() };
    assert!(said(pool, one()).contains("fit beside the weights"));
    let pool = Deployment { pool_tokens: Some(0), ..good() };
    assert!(said(pool, one()).contains("blocks of the pool is 0"));
    let pool = Deployment { pool_tokens: Some(64), ..good() };
    assert!(said(pool, alike(1, 50, 20)).contains("is 70, expected at most the 64"));
    assert!(said(good(), alike(1, 0, 20)).contains("at least 1"));
    for bandwidth in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut deployment = good();
        deployment.hardware.bytes_per_second = bandwidth;
        assert!(said(deployment, one()).contains("bytes a second is"), "{bandwidth}");
    }
    let mut lucky = good();
    (lucky.speculation.draft, lucky.speculation.acceptance) = (4, 1.2);
    assert!(said(lucky, one()).contains("acceptance is 1.2, expected 0 to 1"));
    let nobody = Workload { clients: Some(0), ..one() };
    assert!(said(good(), nobody).contains("clients is 0"));
    let shape = published("llama-3-8b").unwrap().shape;
    let experts = serving::simulator::SimulatedModel::new(
        "experts",
        &shape,
        47_000_000_000,
        &[],
        4096,
        Storage::BF16,
    );
    assert!(experts.unwrap_err().to_string().contains("a dense model"));
    for text in ["", "gqa", "gqa:0", "gqa:x", "mla:512", "mla:0+64", "gqa:99999999999999999999"] {
        let refused = text.parse::<serving::simulator::KvMethod>().unwrap_err().to_string();
        assert!(refused.contains("expected model, mha"), "{refused}");
    }
    let odd = Storage { method: "gqa:7".parse().unwrap(), ..Storage::BF16 };
    let odd = serving::simulator::SimulatedModel::new("x", &shape, shape.parameters(), &[], 9, odd);
    assert!(odd.unwrap_err().to_string().contains("a divisor of the 32 query heads"));
}

#[test]
fn nothing_to_do_is_done_at_once() {
    let outcome = simulate(&deployment("llama-3-8b", "h100", 1), &alike(0, 1, 1)).unwrap();
    assert_eq!((outcome.requests.len(), outcome.passes, outcome.tokens_per_second), (0, 0, 0.0));
    assert_eq!(outcome.cost_per_million_tokens, None);
}

#[test]
fn an_idle_machine_waits_for_who_comes() {
    let size = |seconds| Size { at: Duration::from_secs(seconds), prompt: 8, answer: 4 };
    let load = Workload { sizes: vec![size(5), size(100)], clients: None, seed: 1 };
    let outcome = simulate(&deployment("llama-3-8b", "h100", 1), &load).unwrap();
    assert_eq!(outcome.requests[1].came, 100.0);
    let [first, second] = [0, 1].map(|request| outcome.requests[request].ttft());
    assert!((first - second).abs() < 1e-9 && first > 0.0);
    assert!((95.0..95.1).contains(&outcome.seconds) && outcome.busy < 0.01);
}
