//! The simulated engine beside the real one: other clocks, the same decisions.

use embedded_models::TARGET;
use indicatif::ProgressBar;
use model_files::ModelFiles;
use naive_decode::{LoadOptions, Model};
use paged_cache::Room;
use serving::engine::policy::{Budget, Continuous, Policy, StaticBatches};
use serving::engine::{Engine, EngineOptions};
use serving::load::sizes::{Size, Sizes, Spread};
use serving::simulate::{Task, calibrate, drive, of_files, storage_of};
use serving::simulator::{
    Card, Deployment, Fitted, PassTime, SimulatedModel, Speculation, Workload, simulate,
};
use std::sync::Arc;

struct Place {
    model: Arc<Model>,
    counted: SimulatedModel,
}

fn place() -> Place {
    let files = ModelFiles::embedded(&TARGET).unwrap();
    let model = files.load(LoadOptions::default()).unwrap();
    let storage = storage_of(&files, &model).unwrap();
    let counted = of_files(&files, model.context(), storage).unwrap();
    Place { model: Arc::new(model), counted }
}

impl Place {
    fn options(&self, policy: Arc<dyn Policy>, pool_tokens: usize) -> EngineOptions {
        EngineOptions {
            pool_bytes: Room::for_tokens(&self.model, pool_tokens).unwrap().bytes,
            rows: 48,
            running: 8,
            draft: 0,
            prefixes: false,
            policy,
            ..EngineOptions::for_model(&self.model).unwrap()
        }
    }

    fn deployment(&self, options: &EngineOptions) -> Deployment {
        let hardware = Card::named("l4").unwrap().into();
        let bytes = self.model.kv_bytes_per_token();
        Deployment {
            model: self.counted.clone(),
            pass_time: PassTime::Measured(Fitted {
                knots: vec![(1.0, 1e-3), (64.0, 5e-3)],
                head_share: 0.1,
                decode_pair: 0.0,
                prefill_pair: 0.0,
                held_up: 1.0,
                passes: 2,
                typical_error: 0.0,
            }),
            hardware,
            policy: options.policy.clone(),
            budget: Budget { rows: options.rows, running: options.running },
            block: options.block,
            pool_tokens: Some(options.pool_bytes / bytes),
            speculation: Speculation::NONE,
        }
    }
}

/// Requests of very different lengths.
fn sizes() -> Vec<Size> {
    let (spread, per_second) = (Spread::Exponential, None);
    let sizes =
        Sizes { requests: 24, per_second, prompt_tokens: 20, answer_tokens: 60, spread, seed: 5 };
    sizes.draw(160).unwrap()
}

#[test]
fn it_decides_pass_for_pass_as_the_engine_does() {
    let place = place();
    let sizes = sizes();
    let task = |(number, size): (usize, &Size)| Task {
        prompt: (0..size.prompt).map(|at| ((number * 101 + at * 37) % 2000 + 5) as u32).collect(),
        answer: size.answer,
    };
    let tasks: Vec<Task> = sizes.iter().enumerate().map(task).collect();
    let policies: [Arc<dyn Policy>; 2] = [Arc::new(Continuous), Arc::new(StaticBatches)];
    let mut preempted = 0;
    for policy in policies {
        // Plenty of room, and hardly any.
        for (pool_tokens, clients) in [(2048, 1), (2048, 6), (2048, 24), (256, 6), (256, 24)] {
            let options = place.options(policy.clone(), pool_tokens);
            let mut engine = Engine::new(place.model.clone(), options.clone()).unwrap();
            let driven = drive(&mut engine, &tasks, clients).unwrap();
            let load = Workload { sizes: sizes.clone(), clients: Some(clients), seed: 0 };
            let simulated = simulate(&place.deployment(&options), &load).unwrap();
            let what = format!("{}, {pool_tokens} tokens, {clients} clients", policy.name());
            assert_eq!(driven.steps.len(), simulated.passes, "{what}");
            let rows = driven.steps.iter().flat_map(|(record, _)| &record.spans);
            let rows: usize = rows.map(|span| span.rows).sum();
            assert_eq!(rows as f64 / driven.steps.len() as f64, simulated.rows_per_pass, "{what}");
            let gave_up = driven.steps.iter().map(|(record, _)| record.preempted.len());
            assert_eq!(gave_up.sum::<usize>(), simulated.preemptions, "{what}");
            preempted += simulated.preemptions;
            let lengths = |requests: &[serving::simulator::RequestOutcome]| -> Vec<_> {
                requests.iter().map(|r| (r.prompt, r.answer, r.preemptions)).collect()
            };
            assert_eq!(lengths(&driven.requests), lengths(&simulated.requests), "{what}");
        }
    }
    assert!(preempted > 0, "no pool was too small");
}

#[test]
fn calibration_sees_every_pass_and_leaves_the_engine_as_it_was() {
    let place = place();
    let options = place.options(Arc::new(Continuous), 1024);
    let passes = calibrate(&place.model, &place.counted, &options, 64, &ProgressBar::hidden());
    let passes = passes.unwrap();
    // Alone, a prompt of eight rows and eight more tokens; and so on.
    let first: Vec<f64> = passes[..9].iter().map(|pass| pass.work.rows).collect();
    assert_eq!(first, [8.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    let depths: Vec<f64> = passes[1..9].iter().map(|pass| pass.work.decode_pairs).collect();
    assert_eq!(depths, [9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0]);
    assert_eq!(passes[0].work.prefill_pairs, 36.0);
    for rows in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0] {
        assert!(passes.iter().any(|pass| pass.work.rows == rows), "a pass of {rows} rows");
    }
    let deepest = passes.iter().map(|pass| pass.work.decode_pairs).fold(0.0, f64::max);
    assert!(deepest >= 3.0 * 64.0, "several texts side by side, 64 tokens on: {deepest}");
    let fitted = Fitted::to(&passes, place.counted.head_share()).unwrap();
    assert!(fitted.knots.iter().all(|knot| knot.1 >= 0.0 && knot.1.is_finite()));
    assert!(fitted.seconds(&passes[0].work) > 0.0);
}
