//! Breaking it.

use super::{adding, head};
use flash_attention::faults::{RaggedTile, averaged_splits, update_without_rescale};
use flash_attention::traffic::Traffic;
use flash_attention::{Online, flash_decoding};
use naive_decode::{Attention, LayerSpec, Pass, Result, Span, Want};
use ndarray::{Array2, Array3, ArrayView3};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Attention that answers nothing, and notes where the places end that a row looks at.
struct Looks<'a>(&'a AtomicUsize);

impl Attention for Looks<'_> {
    fn begin(&mut self, _: &Pass) -> Result<()> {
        Ok(())
    }

    fn attend(
        &mut self,
        _: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        _: ArrayView3<f32>,
        _: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        self.0.store(pass.spans[0].sees[0].range.end, Ordering::Relaxed);
        Ok(Array3::zeros(q.dim()))
    }

    fn commit(&mut self, _: &Pass) {}
}

#[test]
fn a_missing_rescale_counts_too_much() {
    let nothing = Array2::zeros((0, 1));
    let (head, values) = (adding(nothing.view()), Array2::ones((1, 1)));
    let (mut right, mut faulty) = (Online::new(1), Online::new(1));
    right.update(&head, 0, &[3.5], values.view());
    update_without_rescale(&mut faulty, &head, 0, &[3.5], values.view());
    assert_eq!(faulty, right);
    right.update(&head, 1, &[10.25], values.view());
    update_without_rescale(&mut faulty, &head, 1, &[10.25], values.view());
    let times = faulty.lanes[0] / right.lanes[0];
    assert_eq!(times, 128.0);
    // The newest tile counts as it should.
    assert_eq!(faulty.lanes[1], right.lanes[1]);
}

#[test]
fn places_that_nobody_wrote() {
    let unwritten = |seen: usize| {
        let end = AtomicUsize::new(0);
        let pass = Pass::one(Span::new(0, seen - 1, &[0], Want::Last));
        let layer = LayerSpec { index: 0, kv_layer: 0, window: None, scale: 1.0, score_cap: None };
        let x = Array3::zeros((1, 1, 1));
        let mut ragged = RaggedTile::new(Looks(&end), 1_000);
        ragged.attend(layer, &pass, x.view(), x.view(), x.view()).unwrap();
        end.into_inner() - seen
    };
    assert_eq!(unwritten(101), 11);
    assert_eq!([111, 112, 113].map(unwritten), [1, 0, 15]);
}

/// One key matches, all others hardly do; its value is 1, and all others are 0.
#[test]
fn an_average_over_parts_dilutes_the_answer() {
    let keys = Array2::from_shape_fn((100, 1), |(place, _)| if place == 40 { 50.0 } else { 0.0 });
    let values = Array2::from_shape_fn((100, 1), |(place, _)| f32::from(place == 40));
    let queries = Array2::ones((1, 1));
    let sees = std::iter::once(0..100).collect::<Vec<_>>();
    let head = head(&queries, &keys, &values, &sees);
    let merged = flash_decoding(&head, 4, &Traffic::new())[[0, 0]];
    let averaged = averaged_splits(&head, 4, &Traffic::new())[[0, 0]];
    assert_eq!((merged, averaged), (1.0, 0.25));
    // Where nothing is seen, nothing is answered.
    let nothing = Array2::zeros((0, 1));
    let sees = std::iter::once(0..0).collect::<Vec<_>>();
    let head = self::head(&queries, &nothing, &nothing, &sees);
    assert_eq!(averaged_splits(&head, 4, &Traffic::new())[[0, 0]], 0.0);
}
