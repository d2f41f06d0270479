//! The naive loop itself: a pass per token, over everything so far.

use crate::judge::{Feed, Judge};
use crate::models::{CONTEXT, SHAPES, Shape, encode, noise, target};
use naive_decode::{Element, Isa, NAIVE};

#[test]
fn the_naive_loop_is_one_pass_at_every_step_up_to_the_longest() {
    // As small as a model can be, for the loop sends half a million rows through it.
    let shape = Shape {
        layers: 1,
        heads: 1,
        kv_heads: 1,
        head_dim: 8,
        hidden: 16,
        feed: 16,
        vocab: 32,
        tied: true,
    };
    let model = shape.model(Isa::best(), Element::F32);
    let judge = Judge::new(model.clone(), noise(CONTEXT, shape.vocab));
    judge.check(&NAIVE, Feed::new("smallest model", &model));
}

#[test]
fn the_naive_loop_is_one_pass_on_every_shape() {
    for shape in SHAPES {
        for element in [Element::F32, Element::Bf16, Element::F16] {
            let model = shape.model(Isa::best(), element);
            let judge = Judge::new(model.clone(), noise(80, shape.vocab));
            let name = format!("{shape:?}, {element:?}");
            judge.check(&NAIVE, Feed::new(&name, &model));
        }
    }
}

#[test]
fn the_naive_loop_is_one_pass_on_the_target() {
    let model = target(Isa::best());
    let judge = Judge::new(
        model.clone(),
        encode("A lantern hung in the mill, and every evening the miller counted its sparks."),
    );
    judge.check(&NAIVE, Feed::new("the target", &model));
}
