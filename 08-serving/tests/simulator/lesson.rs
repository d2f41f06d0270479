//! The figures of a published lesson on serving, as the simulator has them: where it agrees, and where it does not, why.
//!
//! The lesson ends with a simulator of its own, which is the roofline and no more. Its running examples are Llama-2
//! models in 16 bits on H100s.

use crate::world::{deployment, model, with_kv};
use serving::simulator::{Deployment, Limit, Speculation, Storage};

/// One figure of the lesson.
struct Row {
    what: &'static str,
    claimed: f64,
    /// What the simulator says.
    simulated: fn() -> f64,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy)]
enum Verdict {
    /// Within so many parts of a hundred, and where those come from.
    Agrees(f64, &'static str),
    /// It does not, and why.
    Differs(&'static str),
}

use Verdict::{Agrees, Differs};

fn decode_13b(batch: usize) -> serving::simulator::PassBound {
    deployment("llama-2-13b", "h100", 1).decode_step(batch, 1024)
}

fn decode_70b(storage: Storage, batch: usize) -> f64 {
    let two = deployment("llama-2-70b", "h100", 2);
    Deployment { model: model("llama-2-70b", storage), ..two }.decode_step(batch, 100).seconds
}

fn kv_70b(method: &str) -> f64 {
    model("llama-2-70b", with_kv(method)).kv_bytes_per_token()
}

fn guessing(draft: usize, acceptance: f64, cost: f64) -> Deployment {
    let speculation = Speculation { draft, acceptance, cost };
    Deployment { speculation, ..deployment("llama-2-70b", "h100", 2) }
}

/// H100s for 1,000 users of Llama-2-70B with 1,024 tokens each, 24 tokens a second for everyone: two cards hold it,
/// and take as many users as fit and as are fast enough.
fn cards_for_a_thousand() -> f64 {
    let pair = deployment("llama-2-70b", "h100", 2);
    let is_served = |batch: &usize| {
        let step = pair.decode_step(*batch, 1024);
        step.fits && step.seconds <= 1.0 / 24.0
    };
    let batch = (1..).take_while(is_served).last().unwrap();
    2.0 * (1000.0 / batch as f64).ceil()
}

const ONE_PER_CENT: &str = "It takes 13 or 70 billion weights, the shape has a few more; a step reads none of the \
    embedding table, which is one row for each token.";

const ROWS: &[Row] = &[
    Row {
        what: "FLOPs a byte at the H100's ridge point",
        claimed: 295.0,
        simulated: || deployment("llama-2-70b", "h100", 1).bounds(100, 100).unwrap().ridge,
        verdict: Agrees(0.2, "989 / 3.35."),
    },
    Row {
        what: "Llama-2-70B, one user, ms a token",
        claimed: 42.0,
        simulated: || deployment("llama-2-70b", "h100", 1).decode_step(1, 100).seconds * 1e3,
        verdict: Agrees(3.0, ONE_PER_CENT),
    },
    Row {
        what: "Llama-2-70B, one user, tokens a second",
        claimed: 24.0,
        simulated: || deployment("llama-2-70b", "h100", 1).decode_step(1, 100).tokens_per_second,
        verdict: Agrees(3.0, ONE_PER_CENT),
    },
    Row {
        what: "H100s that this takes",
        claimed: 1.0,
        simulated: || {
            let fits = |cards: &usize| deployment("llama-2-70b", "h100", *cards).blocks().is_ok();
            (1..9).find(fits).unwrap() as f64
        },
        verdict: Differs("138 GB of weights do not fit into 80 GB."),
    },
    Row {
        what: "Llama-2-70B, ms to the first token after a prompt of 100",
        claimed: 30.0,
        simulated: || {
            let bounds = deployment("llama-2-70b", "h100", 1).bounds(100, 100).unwrap();
            assert_eq!(bounds.prefill.limit, Limit::Memory);
            bounds.prefill.seconds * 1e3
        },
        verdict: Differs("100 rows are below the ridge point: reading the weights takes 41 ms."),
    },
    Row {
        what: "H100s for 1,000 users at 24 tokens a second",
        claimed: 1000.0,
        simulated: cards_for_a_thousand,
        verdict: Differs(
            "One user for each card. The lesson's own next chapters put 64 in a batch.",
        ),
    },
    Row {
        what: "Llama-2-70B, GB of cache for 4,096 tokens",
        claimed: 1.34,
        simulated: || kv_70b("model") * 4096.0 / 1e9,
        verdict: Agrees(0.2, "The same formula."),
    },
    Row {
        what: "Llama-2-70B, GB of cache for 64 requests of 32,768 tokens",
        claimed: 172.0,
        simulated: || 64.0 * model("llama-2-70b", Storage::BF16).kv_bytes(32_768) / 1e9,
        verdict: Differs("Its own product, 1.34 x 64 x 8, is 687."),
    },
    Row {
        what: "Llama-2-13B, batch of 1: GB in memory",
        claimed: 26.84,
        simulated: || decode_13b(1).memory_bytes / 1e9,
        verdict: Agrees(0.2, ONE_PER_CENT),
    },
    Row {
        what: "Llama-2-13B, batch of 64: GB in memory",
        claimed: 79.6,
        simulated: || decode_13b(64).memory_bytes / 1e9,
        verdict: Agrees(0.2, ONE_PER_CENT),
    },
    Row {
        what: "Llama-2-13B, batch of 256: GB in memory",
        claimed: 240.0,
        simulated: || decode_13b(256).memory_bytes / 1e9,
        verdict: Agrees(
            0.5,
            "214 and 26, rounded before they are added. More than three cards have.",
        ),
    },
    Row {
        what: "Llama-2-13B, batch of 1: ms a token",
        claimed: 8.0,
        simulated: || decode_13b(1).seconds * 1e3,
        verdict: Agrees(1.5, ONE_PER_CENT),
    },
    Row {
        what: "Llama-2-13B, batch of 64: ms a token",
        claimed: 23.8,
        simulated: || decode_13b(64).seconds * 1e3,
        verdict: Agrees(1.5, ONE_PER_CENT),
    },
    Row {
        what: "Llama-2-13B, batch of 256: ms a token",
        claimed: 71.6,
        simulated: || decode_13b(256).seconds * 1e3,
        verdict: Agrees(1.5, "But it does not fit, so the bandwidth of one card says little."),
    },
    Row {
        what: "Llama-2-13B, batch of 1: tokens a second",
        claimed: 125.0,
        simulated: || decode_13b(1).tokens_per_second,
        verdict: Agrees(1.5, ONE_PER_CENT),
    },
    Row {
        what: "Llama-2-13B, batch of 64: tokens a second",
        claimed: 2690.0,
        simulated: || decode_13b(64).tokens_per_second,
        verdict: Agrees(1.5, ONE_PER_CENT),
    },
    Row {
        what: "Llama-2-13B, batch of 256: tokens a second",
        claimed: 3575.0,
        simulated: || decode_13b(256).tokens_per_second,
        verdict: Agrees(1.5, "As its milliseconds."),
    },
    Row {
        what: "H100s that a batch of 256 takes",
        claimed: 1.0,
        simulated: || {
            let fits = |&cards: &usize| {
                deployment("llama-2-13b", "h100", cards).decode_step(256, 1024).fits
            };
            (1..9).find(fits).unwrap() as f64
        },
        verdict: Differs("The red line of its own memory bar is at 80 GB."),
    },
    Row {
        what: "texts in a batch from which arithmetic decides",
        claimed: 295.0,
        simulated: || {
            let is_arithmetic = |&batch: &usize| decode_13b(batch).limit == Limit::Arithmetic;
            (0..20).map(|power| 1 << power).find(is_arithmetic).map_or(f64::INFINITY, |b| b as f64)
        },
        verdict: Differs(
            "True of the matrices alone. Every text brings its own cache to read, so never.",
        ),
    },
    Row {
        what: "cache of Llama-2-70B: times smaller by 8 groups",
        claimed: 8.0,
        simulated: || kv_70b("mha") / kv_70b("gqa:8"),
        verdict: Agrees(0.0, "64 / 8."),
    },
    Row {
        what: "cache of Llama-2-70B: times smaller by one group",
        claimed: 64.0,
        simulated: || kv_70b("mha") / kv_70b("mqa"),
        verdict: Agrees(0.0, "64 / 1."),
    },
    Row {
        what: "cache of 64 heads: times smaller by a latent of 512 + 64",
        claimed: 14.0,
        simulated: || kv_70b("mha") / kv_70b("mla"),
        verdict: Differs(
            "8,192 counts keys and forgets values. And DeepSeek-V2 has 128 heads: 56.9 times.",
        ),
    },
    Row {
        what: "cache of 32,768 tokens: times smaller by a window of 4,096",
        claimed: 8.0,
        simulated: || {
            let windowed = Storage { window: Some(4096), ..Storage::BF16 };
            let bytes = |storage| model("llama-2-7b", storage).kv_bytes(32_768);
            bytes(Storage::BF16) / bytes(windowed)
        },
        verdict: Agrees(0.0, "32,768 / 4,096."),
    },
    Row {
        what: "tokens a step with 4 guesses of acceptance 0.9",
        claimed: 4.6,
        simulated: || guessing(4, 0.9, 0.0).bounds(1, 1).unwrap().tokens_per_step,
        verdict: Differs("4.10: what stands behind a guess that failed is thrown away with it."),
    },
    Row {
        what: "times faster with 4 guesses of acceptance 0.8 and cost 0.11",
        claimed: 2.9,
        simulated: || guessing(4, 0.8, 0.11).bounds(1, 1).unwrap().speculative_speed_up,
        verdict: Differs("2.33, for the same reason."),
    },
    Row {
        what: "times faster with FP8 weights",
        claimed: 1.8,
        simulated: || {
            let fp8 = Storage { weight_bits: 8.0, ..Storage::BF16 };
            decode_70b(Storage::BF16, 1) / decode_70b(fp8, 1)
        },
        verdict: Differs(
            "The roofline says 2. That kernels reach 1.8 of it is somebody's measurement: whose, it does not say.",
        ),
    },
    Row {
        what: "times faster with INT4 weights",
        claimed: 3.0,
        simulated: || {
            let int4 = Storage { weight_bits: 4.5, ..Storage::BF16 };
            decode_70b(Storage::BF16, 1) / decode_70b(int4, 1)
        },
        verdict: Differs(
            "3.5 with a scale for every 32, 4 without. A measurement again, or a rounding.",
        ),
    },
];

#[test]
fn every_verdict_is_what_comes_out() {
    let mut wrong = Vec::new();
    for Row { what, claimed, simulated, verdict } in ROWS {
        let simulated = simulated();
        let off = 100.0 * (simulated / claimed - 1.0).abs();
        let is_right = match verdict {
            Agrees(per_cent, why) => !why.is_empty() && off <= *per_cent,
            // What differs by less than rounding would be no reason to say so.
            Differs(why) => !why.is_empty() && off > 5.0,
        };
        if !is_right {
            wrong.push(format!("{what}: claimed {claimed}, simulated {simulated}, {verdict:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(ROWS.len() > 20);
}

// Two answers of the book's quiz.

#[test]
fn a_thousand_users_share_32_cards() {
    assert_eq!(cards_for_a_thousand(), 32.0);
}

#[test]
fn four_guesses_of_eight_in_ten_make_it_233_per_cent() {
    let bounds = guessing(4, 0.8, 0.11).bounds(100, 100).unwrap();
    assert_eq!((bounds.speculative_speed_up * 100.0).round(), 233.0);
}
