//! Deployments to run.

use naive_decode::roofline::published;
use serving::engine::policy::{Budget, Continuous};
use serving::load::sizes::{Size, Sizes, Spread};
use serving::simulator::{
    Card, Deployment, Hardware, KvMethod, PassTime, SimulatedModel, Speculation, Storage, Workload,
};
use std::sync::Arc;
use std::time::Duration;

/// A published model with its own or another KV method.
pub(crate) fn model(name: &str, storage: Storage) -> SimulatedModel {
    let found = published(name).unwrap();
    let windows = vec![found.window; found.shape.layers];
    let parameters = found.shape.parameters();
    SimulatedModel::new(name, &found.shape, parameters, &windows, 1 << 20, storage).unwrap()
}

/// A published model in 16 bits on cards of this name.
pub(crate) fn deployment(name: &str, card: &str, cards: usize) -> Deployment {
    let hardware = Hardware::from(Card::named(card).unwrap()).times(cards).unwrap();
    Deployment {
        model: model(name, Storage::BF16),
        pass_time: PassTime::Roofline(hardware.machine()),
        hardware,
        policy: Arc::new(Continuous),
        budget: Budget { rows: 256, running: 32 },
        block: 16,
        pool_tokens: None,
        speculation: Speculation::NONE,
    }
}

pub(crate) fn with_kv(method: &str) -> Storage {
    let method: KvMethod = method.parse().unwrap();
    Storage { method, ..Storage::BF16 }
}

/// Requests that are alike, all there from the beginning.
pub(crate) fn alike(requests: usize, prompt: usize, answer: usize) -> Workload {
    let size = Size { at: Duration::ZERO, prompt, answer };
    Workload { sizes: vec![size; requests], clients: None, seed: 1 }
}

/// Requests of very different lengths that come at a rate.
pub(crate) fn mixed(requests: usize, per_second: Option<f64>) -> Workload {
    let sizes = Sizes {
        requests,
        per_second,
        prompt_tokens: 200,
        answer_tokens: 100,
        spread: Spread::Exponential,
        seed: 1,
    };
    Workload { sizes: sizes.draw(4096).unwrap(), clients: None, seed: 1 }
}
