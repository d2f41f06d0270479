//! What the engine looks like from outside.

use crate::world::{Asked, Dice, engine, options};
use serving::engine::{Cell, EngineOptions, EngineState, Step};
use std::sync::Arc;

/// A pool of so many blocks, and one request in it that goes on no more: nobody reads its events.
fn halfway(blocks: usize) -> Arc<EngineState> {
    let mut engine = engine(EngineOptions { events: 16, draft: 0, ..options(4 * blocks) });
    let _unread = engine.submit(Asked::new(Dice(51).tokens(30), 100).request()).unwrap();
    while !matches!(engine.step().unwrap(), Step::Idle(_)) {}
    engine.state()
}

#[test]
fn blocks_are_counted_although_there_are_too_many_to_draw() {
    let (small, large) = (halfway(500), halfway(5_000));
    let drawn = |kind| small.cells.iter().filter(|cell| **cell == kind).count();
    let counted = small.blocks;
    assert_eq!((drawn(Cell::Free), drawn(Cell::Cached)), (counted.free, counted.cached));
    assert_eq!(drawn(Cell::Shared), counted.shared);
    assert_eq!(drawn(Cell::Used), counted.used() - counted.shared);
    assert!(counted.shared > 0 && counted.used() > counted.shared, "{counted:?}");
    assert!(large.cells.is_empty());
    assert_eq!((large.running, large.blocks.total), (1, 5_000));
    assert_eq!(large.blocks.used(), counted.used());
    assert_eq!(large.blocks.shared, counted.shared);
}
