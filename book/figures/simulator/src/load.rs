//! Of rung 08's loads, when requests come and how long they are.

#[path = "../../../../08-serving/src/load/sizes.rs"]
pub mod sizes;
