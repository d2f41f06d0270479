//! What fits, and what is refused.

use crate::world::{ROOM, SEED, config, on_device, on_processor, text};
use cuda_executor::{CudaExecutor, Room};
use cuda_kernels::Interpreter;
use kv_cache::{CachedExecutor, KvCache};
use naive_decode::{Config, Executor, Pass, Span, Want, random_tensors};

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut executor = on_device(Room { tokens: 32, ..ROOM });
    let text = text(33);
    let mut refused = |span: Span| {
        let error = executor.execute(&Pass::one(span)).unwrap_err().to_string();
        assert_eq!(executor.cache().len(0), 0);
        executor.cache().check_integrity([]).unwrap();
        error
    };
    let span = |tokens: &[u32]| Span::new(0, 0, tokens, Want::Last);
    assert_eq!(refused(span(&[1, 80])), "token is 80, expected below the vocabulary's 80");
    assert_eq!(refused(span(&text)), "the pool of blocks holds 32 tokens; 48 were asked for");
    assert_eq!(
        refused(span(&[0; 129])),
        "rows of a pass on CUDA is 129, expected at most 128, for which there is room"
    );
    let mut far = span(&[1]);
    far.positions = vec![320];
    assert_eq!(refused(far), "positions on the device holds 320 tokens; 321 were asked for");
    // There is room for what does fit.
    executor.execute(&Pass::one(span(&text[..32]))).unwrap();
    let empty = executor.execute(&Pass { spans: Vec::new() }).unwrap();
    assert_eq!(empty.dim(), (0, 80));

    let room = |room: Room, config: Config| {
        let rope = &on_processor().rope;
        let tensors = random_tensors(SEED);
        CudaExecutor::new(Interpreter::new(), config, rope, &tensors, room)
            .err()
            .unwrap()
            .to_string()
    };
    assert_eq!(
        room(Room { capacity: 321, ..ROOM }, config()),
        "the model's context holds 320 tokens; 321 were asked for"
    );
    assert_eq!(
        room(ROOM, Config { head_dim: 160, ..config() }),
        "head_dim for CUDA is 160, expected an even number up to 128"
    );
    assert_eq!(
        room(ROOM, Config { vocab_size: 81, ..config() }),
        "vocab_size for CUDA is 81, expected a multiple of 8"
    );
    assert!(room(Room { rows: 0, ..ROOM }, config()).contains("none of it 0"));
}
