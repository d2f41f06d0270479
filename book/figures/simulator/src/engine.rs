//! Of rung 08's engine, who decides.

#[path = "../../../../08-serving/src/engine/policy/mod.rs"]
pub mod policy;
