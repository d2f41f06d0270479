//! Breaking it.

use super::{bits, decoder, key, slab, target, text};
use kv_cache::{Cached, ContiguousStore, KvShape, Place, Store, forward_store};
use naive_decode::{Decoder, Pass, Span, Want, argmax};

/// Slots of two tokens exchanged: keys and values, in every layer and head.
fn exchange(store: &mut impl Store, a: usize, b: usize) {
    let shape = store.shape();
    for i in 0..shape.layers * shape.kv_heads {
        let at = |slot| {
            let (layer, kv_head) = (i / shape.kv_heads, i % shape.kv_heads);
            Place { sequence: 0, layer, kv_head, slot }
        };
        let read = |store: &dyn Store, slot| {
            let mut both = [vec![0.0; shape.key_dim], vec![0.0; shape.value_dim]];
            store.key(at(slot), &mut both[0]);
            store.value(at(slot), &mut both[1]);
            both
        };
        let (of_a, of_b) = (read(store, a), read(store, b));
        store.write(at(a), &of_b[0], &of_b[1]);
        store.write(at(b), &of_a[0], &of_a[1]);
    }
}

#[test]
fn a_slot_is_a_place_to_keep_things_and_not_a_position() {
    let model = target();
    let prompt = text(64);
    let mut clean = decoder(&model, slab(&model, 65));
    let mut exchanged = decoder(&model, slab(&model, 65));
    clean.feed(&prompt).unwrap();
    exchanged.feed(&prompt).unwrap();
    exchange(exchanged.executor.attention.store_mut(), 3, 41);
    let (clean, exchanged) = (clean.feed(&[7]).unwrap(), exchanged.feed(&[7]).unwrap());
    assert!(bits(&clean) != bits(&exchanged));
    let largest = clean.iter().zip(&exchanged).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest < 1e-3, "{largest}");
    assert_eq!(argmax(&exchanged).unwrap(), argmax(&clean).unwrap());
}

/// Writes every key and value one slot too far.
struct Shifted(ContiguousStore);

impl Store for Shifted {
    forward_store!(0: shape sequences capacity key value truncate allocated_bytes);

    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        self.0.write(Place { slot: place.slot + 1, ..place }, key, value);
    }
}

#[test]
fn a_shifted_row_sees_zeros_and_never_itself() {
    let model = target();
    let shape = KvShape::of(&model);
    let store = Shifted(ContiguousStore::new(shape, 65, 1).unwrap());
    let mut clean = decoder(&model, slab(&model, 65));
    let mut shifted = decoder(&model, Cached::new(store, model.isa));
    clean.feed(&text(11)).unwrap();
    shifted.feed(&text(11)).unwrap();
    // Row 10 reads slots 0 to 10. In layer 0, where a key is made from its token alone:
    let clean = |slot| key(clean.executor.attention.store(), 0, 0, slot);
    let shifted = |slot| key(shifted.executor.attention.store(), 0, 0, slot);
    assert_eq!(shifted(0), vec![0.0; 32]);
    for slot in 1..=10 {
        assert_eq!(shifted(slot), clean(slot - 1));
    }
    // The row's own key lies in the next one, which it does not see.
    assert_eq!(shifted(11), clean(10));
}

#[test]
fn moving_a_whole_text_changes_only_rounding() {
    let model = target();
    let run = |moved: usize| {
        let mut span = Span::new(0, 0, &text(64), Want::Last);
        span.positions.iter_mut().for_each(|position| *position += moved);
        model.forward(&Pass::one(span), &mut slab(&model, 64)).unwrap().row(0).to_vec()
    };
    let (here, there) = (run(0), run(40));
    assert!(bits(&here) != bits(&there));
    let largest = here.iter().zip(&there).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest < 1e-2, "{largest}");
    assert_eq!(argmax(&there).unwrap(), argmax(&here).unwrap());
}
