//! Every form is the same function.

use crate::case::{Heads, Plain, first_difference, heads, held, layer, span};
use flash_attention::traffic::Traffic;
use flash_attention::{
    Head, Method, Tiling, attend_heads, flash_decoding, flash_v1, flash_v2, standard,
    unified_maximum,
};
use naive_decode::{Isa, attend_span};
use ndarray::{Array2, Array3};
use proptest::prelude::*;
use std::cell::Cell;

#[derive(Debug, Clone)]
struct Case {
    heads: Heads,
    held: usize,
    rows: usize,
    window: Option<usize>,
    /// Seed of a draft tree.
    tree: Option<u64>,
    scale: f32,
    tiling: Tiling,
    workers: usize,
    unified: i32,
    isa: usize,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let window = prop_oneof![2 => Just(None), 1 => (1usize..40).prop_map(Some), 1 => (500usize..600).prop_map(Some)];
    let tree = prop_oneof![3 => Just(None), 1 => any::<u64>().prop_map(Some)];
    // The largest makes scores of thousands, and weights that are nothing beside each other.
    let scale = prop_oneof![Just(0.1f32), Just(1.0), Just(20.0), Just(2000.0)];
    let keys = prop_oneof![3 => 1usize..40, 1 => 1usize..700];
    let tiling = (1usize..9, keys).prop_map(|(queries, keys)| Tiling { queries, keys });
    let sizes = (heads(), held(), 1usize..7);
    let rest = (1usize..6, -40..40i32, 0usize..4, any::<u64>());
    (sizes, window, tree, scale, tiling, rest).prop_map(
        |((heads, held, rows), window, tree, scale, tiling, (workers, unified, isa, seed))| Case {
            heads,
            held,
            rows,
            window,
            tree,
            scale,
            tiling,
            workers,
            unified,
            isa,
            seed: seed / 4,
        },
    )
}

impl Case {
    fn isa(&self) -> Isa {
        let available = Isa::available();
        available[self.isa % available.len()]
    }

    fn expected(&self) -> Array3<f32> {
        let (q, span) = (self.heads.queries(self.seed, self.rows), self.span());
        let (k, v) = self.heads.keys_values(self.seed, self.held + self.rows);
        let mut out = Array3::zeros((self.rows, q.dim().1, v.dim().2));
        let plain = Plain { k: k.view(), v: v.view() };
        let layer = layer(self.window, self.scale);
        attend_span(Isa::best(), layer, &span, q.view(), &plain, out.view_mut());
        out
    }

    fn span(&self) -> naive_decode::Span {
        span(0, self.held, self.rows, self.tree)
    }

    fn by(&self, method: Method) -> Array3<f32> {
        let q = self.heads.queries(self.seed, self.rows);
        let (k, v) = self.heads.keys_values(self.seed, self.held + self.rows);
        let layer = layer(self.window, self.scale);
        let qkv = (q.view(), k.view(), v.view());
        attend_heads(method, self.isa(), layer, &self.span(), qkv, &Traffic::new())
    }

    fn check(&self) {
        let expected = self.expected();
        let Case { tiling, workers, unified, .. } = *self;
        let methods: [(&str, Method); 5] = [
            ("standard", &standard),
            ("FlashAttention v1", &|head, traffic| flash_v1(head, tiling, traffic)),
            ("FlashAttention v2", &|head, traffic| flash_v2(head, tiling, traffic)),
            ("Flash-Decoding", &|head, traffic| flash_decoding(head, workers, traffic)),
            ("FlashDecoding++", &|head, traffic| {
                unified_maximum(head, workers, unified, traffic).0
            }),
        ];
        for (name, method) in methods {
            if let Some(difference) = first_difference(&self.by(method), &expected) {
                panic!("{name}: {difference}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_200, ..ProptestConfig::default() })]

    #[test]
    fn every_form_gives_the_bits_of_the_textbook(case in case()) {
        case.check();
    }
}

/// The maximum rises in every tile: each step rescales all that came before.
#[test]
fn a_maximum_that_keeps_rising_changes_nothing() {
    let places = 600;
    let keys = Array2::from_shape_fn((places, 1), |(place, _)| place as f32 * 0.7 - 100.0);
    let values = Array2::from_shape_fn((places, 2), |(place, d)| ((place * 7 + d) % 11) as f32);
    let queries = Array2::ones((1, 1));
    let sees = &std::iter::once(0..places).collect::<Vec<_>>();
    let (keys, values, queries) = (keys.view(), values.view(), queries.view());
    let head = Head { isa: Isa::best(), scale: 1.0, cap: None, queries, keys, values, sees };
    let expected = standard(&head, &Traffic::new());
    for keys in [1, 3, 16, 100, 512, 1000] {
        let tiling = Tiling { queries: 1, keys };
        assert_eq!(flash_v1(&head, tiling, &Traffic::new()), expected);
        assert_eq!(flash_v2(&head, tiling, &Traffic::new()), expected);
    }
}

#[test]
fn a_split_that_does_not_fit_the_unified_maximum_is_done_again() {
    let heads = Heads { kv_heads: 1, group: 2, key_dim: 8, value_dim: 8, absorbed: false };
    let case = Case {
        heads,
        held: 1100,
        rows: 1,
        window: None,
        tree: None,
        scale: 10.0,
        tiling: Tiling { queries: 1, keys: 1 },
        workers: 2,
        unified: 0,
        isa: 0,
        seed: 5,
    };
    let expected = case.expected();
    let redone_at = |unified| {
        let redone = Cell::new(0);
        let found = case.by(&|head, traffic| {
            let (answers, again) = unified_maximum(head, 2, unified, traffic);
            redone.set(redone.get() + again);
            answers
        });
        assert_eq!(first_difference(&found, &expected), None);
        redone.get()
    };
    // Two queries, three splits. Their maxima lie between 10 and 50 or so.
    assert_eq!(redone_at(0), 0);
    assert_eq!(redone_at(200), 6);
    assert_eq!(redone_at(-200), 6);
}
