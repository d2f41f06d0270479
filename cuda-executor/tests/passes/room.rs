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

#[test]
fn a_room_whose_passes_could_not_be_launched_is_refused_at_the_start() {
    let refused = |rows: usize, config: Config| {
        let room = Room { rows, ..ROOM };
        let said = room.bytes(&config).unwrap_err().to_string();
        let (rope, tensors) = (&on_processor().rope, random_tensors(SEED));
        let made = CudaExecutor::new(Interpreter::new(), config, rope, &tensors, room);
        assert_eq!(made.err().unwrap().to_string(), said);
        said
    };
    // Rows are the second dimension of a grid.
    assert_eq!(
        refused(65_536, config()),
        "rows of a room on the device is 65536, expected as many as the kernels take (CUDA: rope_cache: number of rows is 65536; it must be from 1 to 65535)"
    );
    assert!(Room { rows: 65_535, ..ROOM }.bytes(&config()).is_ok());
    // Products are counted in 32 bits: 40,000 rows of gates of 2 * 30,000.
    let wide = refused(40_000, Config { intermediate_size: 30_000, ..config() });
    assert!(wide.contains("gemm_prefill: rows times outputs is 2400000000"), "{wide}");
    assert!(refused(usize::MAX, config()).contains("rows of a room on the device"));
    assert!(refused(0, config()).contains("none of it 0"));
    // What a config says of its positions may be any number: bytes for so many would be more than can be counted.
    let endless = Room { capacity: 1 << 60, ..ROOM }.bytes(&config()).unwrap_err().to_string();
    assert!(endless.contains("at most 1073741824"), "{endless}");
    // A model that the kernels do not fit is not called a room that is too large.
    assert!(refused(1, Config { heads: 0, ..config() }).contains("number of heads is 0"));
}
