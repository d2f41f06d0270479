//! Whatever is asked, a run ends, adds up or says why not.

use crate::world::{deployment, with_kv};
use naive_decode::roofline::published;
use proptest::prelude::*;
use serving::engine::policy::{Budget, StaticBatches};
use serving::load::sizes::{Sizes, Spread};
use serving::simulator::{
    Deployment, Fitted, PassTime, SimulatedModel, Speculation, Storage, Workload, simulate,
};
use std::sync::Arc;

fn deployments() -> impl Strategy<Value = Deployment> {
    let shapes = prop::sample::select(vec!["smollm2-135m", "llama-3-8b", "mistral-7b"]);
    let kv =
        (prop::sample::select(vec!["model", "mqa", "mha", "mla"]), prop::option::of(1usize..300));
    let budget = (1usize..20, 0usize..80);
    let pool = prop::option::of(0usize..3000);
    let guesses = (0usize..6, 0.0f64..=1.0, 0.0f64..0.5);
    (shapes, kv, budget, pool, guesses, 1usize..40, any::<bool>(), any::<bool>()).prop_map(
        |(
            shape,
            (kv, window),
            (running, more),
            pool_tokens,
            guesses,
            block,
            is_static,
            is_timed,
        )| {
            let mut deployment = deployment(shape, "h100", 1);
            let (storage, shape) =
                (Storage { window, ..with_kv(kv) }, published(shape).unwrap().shape);
            let parameters = shape.parameters();
            deployment.model =
                SimulatedModel::new("any", &shape, parameters, &[], 600, storage).unwrap();
            deployment.budget = Budget { rows: running + more, running };
            (deployment.pool_tokens, deployment.block) = (pool_tokens, block);
            let (draft, acceptance, cost) = guesses;
            deployment.speculation = Speculation { draft, acceptance, cost };
            if is_static {
                deployment.policy = Arc::new(StaticBatches);
            }
            if is_timed {
                deployment.pass_time = PassTime::Measured(Fitted {
                    knots: vec![(1.0, 1e-3), (4.0, 9e-4), (32.0, 4e-3)],
                    head_share: 0.2,
                    decode_pair: 1e-7,
                    prefill_pair: 1e-8,
                    held_up: 1.0,
                    passes: 3,
                    typical_error: 0.0,
                });
            }
            deployment
        },
    )
}

fn loads() -> impl Strategy<Value = Sizes> {
    let rate = prop::option::of(0.01f64..1e4);
    (0usize..40, rate, 0usize..400, 0usize..200, any::<bool>(), any::<u64>()).prop_map(
        |(requests, per_second, prompt_tokens, answer_tokens, is_fixed, seed)| {
            let spread = if is_fixed { Spread::Fixed } else { Spread::Exponential };
            Sizes { requests, per_second, prompt_tokens, answer_tokens, spread, seed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_run_ends_and_adds_up(
        deployment in deployments(), sizes in loads(), clients in prop::option::of(0usize..50),
    ) {
        let Ok(longest) = deployment.longest() else {
            let nothing = Workload { sizes: Vec::new(), clients, seed: 0 };
            prop_assert!(simulate(&deployment, &nothing).is_err());
            return Ok(());
        };
        let Ok(sizes) = sizes.draw(longest) else { return Ok(()) };
        let load = Workload { sizes, clients, seed: 1 };
        if clients == Some(0) {
            prop_assert!(simulate(&deployment, &load).is_err());
            return Ok(());
        }
        let outcome = simulate(&deployment, &load).unwrap();
        prop_assert_eq!(&outcome, &simulate(&deployment, &load).unwrap(), "the same again");
        prop_assert_eq!(outcome.requests.len(), load.sizes.len());
        let answers: usize = load.sizes.iter().map(|size| size.answer).sum();
        prop_assert_eq!(outcome.generated_tokens, answers);
        prop_assert!(outcome.memory.peak_kv <= outcome.memory.pool);
        prop_assert!(outcome.memory.weights + outcome.memory.pool <= outcome.memory.of * (1.0 + 1e-12));
        prop_assert!(outcome.accepted_tokens <= outcome.drafted_tokens);
        prop_assert!(outcome.rows_per_pass <= deployment.budget.rows as f64);
        prop_assert!(outcome.requests_per_pass <= deployment.budget.running as f64);
        prop_assert!(outcome.seconds.is_finite() && outcome.busy <= 1.0 + 1e-9);
        if let Some(clients) = clients {
            // At no moment are there more than there are clients.
            for request in &outcome.requests {
                let at_once = outcome.requests.iter().filter(|other| {
                    other.came <= request.came && request.came < other.finished
                });
                prop_assert!(at_once.count() <= clients);
            }
        }
    }
}
