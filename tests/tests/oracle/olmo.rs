//! OLMo 2: what the halves of blocks give back is normed, and queries and keys, all heads of a row at once.
//!
//! candle has no OLMo 3. `model-files/tests/files/architectures` checks that it is OLMo 2 but for its windows, and for RoPE that is
//! stretched where there are none.

use crate::checkpoint::{self as tiny, with};
use crate::compare::Ours;
use anyhow::Result;
use candle_transformers::models::olmo2::{Config, Model};
use serde_json::json;

#[test]
fn norms_are_olmo_2s() -> Result<()> {
    for tied in [true, false] {
        let config = with(tiny::olmo2(), json!({ "tie_word_embeddings": tied }));
        let ours = Ours::new(config.clone())?;
        let theirs: Config = serde_json::from_value(config)?;
        let mut model = Model::new(&theirs, ours.weights()?)?;
        ours.compare_passes("OLMo 2", |input| {
            model.clear_kv_cache();
            model.forward(input, 0)
        })?;
        model.clear_kv_cache();
        ours.compare_steps("OLMo 2", |input, position| model.forward(input, position))?;
    }
    Ok(())
}
