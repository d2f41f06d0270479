//! Launches and modules agree: names, parameters, threads; and shapes that do not fit are refused by name.

use cuda_kernels::attention::{Batch, MlaAttention, PagedAttention, Workspace};
use cuda_kernels::cache::{Cache, CacheScales, Code, RopeCache};
use cuda_kernels::gated::GatedGemm;
use cuda_kernels::gemm::{Blocks, Gemm, Product, Weights, parts};
use cuda_kernels::rows::{AddRmsNorm, Argmax, Embedding, RmsNorm, SwiGlu};
use cuda_kernels::sampling::Sample;
use cuda_kernels::steps::{HopperAttention, Step, StepAttention};
use cuda_kernels::{Argument, Launch};
use std::collections::BTreeSet;

const RMS_NORM: RmsNorm = RmsNorm { out: 0, x: 0, weight: 0, rows: 3, width: 100, epsilon: 1e-5 };
const SWIGLU: SwiGlu = SwiGlu { out: 0, x: 0, rows: 5, width: 257 };
const ARGMAX: Argmax = Argmax { found: 0, scores: 0, rows: 7, vocabulary: 9000 };
const CACHE: Cache = Cache { keys: 0, values: 0, block_stride: 0, head_stride: 0, scales: None };
const ROPE_CACHE: RopeCache = RopeCache {
    queries: 0,
    cache: CACHE,
    qkv: Product::Whole(0),
    turns: 0,
    positions: 0,
    slots: 0,
    rows: 9,
    heads: 8,
    kv_heads: 2,
    head_dim: 128,
};
const PARTS: Product = Product::Parts { parts: 0, splits: 3 };
const ADD_RMS_NORM: AddRmsNorm = AddRmsNorm {
    out: 0,
    residual: 0,
    x: Product::Whole(0),
    weight: 0,
    rows: 3,
    width: 100,
    epsilon: 1e-5,
};
const WORKSPACE: Workspace = Workspace { parts: 0, states: 0 };
const BATCH: Batch = Batch {
    tables: 0,
    lengths: 0,
    query_starts: 0,
    ancestors: None,
    requests: 3,
    table_width: 100,
    most_queries: 33,
    most_keys: 300,
};
const PAGED: PagedAttention = PagedAttention {
    out: 0,
    queries: 0,
    cache: CACHE,
    batch: BATCH,
    heads: 8,
    kv_heads: 2,
    head_dim: 64,
    scale: 0.125,
};
const MLA: MlaAttention = MlaAttention {
    out: 0,
    queries: 0,
    latents: 0,
    block_stride: 0,
    batch: BATCH,
    heads: 16,
    scale: 0.1,
};
const GEMM: Gemm =
    Gemm { out: 0, x: 0, weights: Weights::Bf16(0), rows: 17, outputs: 72, inputs: 520 };
const GATED: GatedGemm = GatedGemm { out: 0, x: 0, weights: 0, rows: 17, outputs: 72, inputs: 520 };
const INT4: Weights = Weights::Int4 { codes: 0, scales: 0 };
const FP8: Weights = Weights::Fp8 { codes: 0, scales: 0 };
const STEPS: StepAttention = StepAttention {
    out: 0,
    queries: 0,
    keys: 0,
    values: 0,
    tokens: 65,
    heads: 4,
    kv_heads: 2,
    scale: 0.125,
};
const HOPPER: HopperAttention = HopperAttention {
    out: 0,
    queries: 0,
    keys: 0,
    values: 0,
    tokens: 129,
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    is_causal: true,
    scale: 0.125,
};

fn every_launch() -> Vec<Launch> {
    let in_bytes = |code| {
        let scales = CacheScales { code, keys: 0, values: 0, block_stride: 0, head_stride: 0 };
        Cache { scales: Some(scales), ..CACHE }
    };
    let [int8_cache, fp8_cache] = [Code::Int8, Code::Fp8].map(in_bytes);
    let paged = [64, 128].into_iter().flat_map(|head_dim| {
        [CACHE, int8_cache, fp8_cache].map(|cache| PagedAttention { head_dim, cache, ..PAGED })
    });
    let int8 = Weights::Int8 { codes: 0, scales: 0 };
    let mut launches = vec![
        RMS_NORM.launch().unwrap(),
        ADD_RMS_NORM.launch().unwrap(),
        AddRmsNorm { x: PARTS, ..ADD_RMS_NORM }.launch().unwrap(),
        SWIGLU.launch().unwrap(),
        Embedding { out: 0, table: 0, tokens: 0, rows: 3, vocabulary: 9, width: 100 }
            .launch()
            .unwrap(),
        ARGMAX.launch().unwrap(),
        ROPE_CACHE.launch().unwrap(),
        RopeCache { qkv: PARTS, ..ROPE_CACHE }.launch().unwrap(),
        RopeCache { cache: int8_cache, ..ROPE_CACHE }.launch().unwrap(),
        RopeCache { cache: fp8_cache, ..ROPE_CACHE }.launch().unwrap(),
        Sample {
            tokens: 0,
            scores: 0,
            temperatures: 0,
            top_ks: 0,
            top_ps: 0,
            draws: 0,
            rows: 3,
            vocabulary: 100,
        }
        .launch()
        .unwrap(),
    ];
    for attention in paged {
        launches.push(attention.prefill().unwrap());
        launches.extend(attention.decode(WORKSPACE).unwrap());
    }
    launches.extend([64, 128].map(|head_dim| {
        let (head_stride, block_stride) = (16 * head_dim as i64, 40 * 16 * head_dim as i64);
        let cache = Cache { head_stride, block_stride, ..CACHE };
        PagedAttention { head_dim, cache, ..PAGED }.prefill_hopper(99, 1000).unwrap()
    }));
    launches.push(MLA.prefill().unwrap());
    launches.extend(MLA.decode(WORKSPACE).unwrap());
    for weights in [GEMM.weights, int8, INT4, FP8] {
        let gemm = Gemm { weights, inputs: 544, ..GEMM };
        launches.push(gemm.prefill().unwrap());
        for rows in [16, 17] {
            launches.extend(Gemm { rows, ..gemm }.decode(0).unwrap());
            launches.extend(Gemm { rows, ..gemm }.decode_f32(0).unwrap());
        }
    }
    launches.extend([16, 17].map(|rows| GatedGemm { rows, ..GATED }.launch().unwrap()));
    launches.push(GEMM.prefill_hopper().unwrap());
    launches.extend(Step::ALL.map(|step| STEPS.launch(step).unwrap()));
    launches
        .extend([64, 128].map(|head_dim| HopperAttention { head_dim, ..HOPPER }.launch().unwrap()));
    launches
}

/// What stands between a kernel's name and its body.
fn head_of(launch: &Launch) -> &'static str {
    let entry = format!(".visible .entry {}(", launch.entry);
    let begin = launch.ptx.find(&entry);
    let begin = begin.unwrap_or_else(|| panic!("{} is not in its module", launch.entry));
    let head = &launch.ptx[begin..];
    &head[..head.find("\n{").unwrap()]
}

#[test]
fn a_launch_passes_what_its_kernel_takes() {
    for launch in every_launch() {
        let head = head_of(&launch);
        let taken = head.lines().filter_map(|line| line.trim().strip_prefix(".param ."));
        let taken: Vec<&str> = taken.map(|line| line.split_whitespace().next().unwrap()).collect();
        let given: Vec<&str> = launch.arguments.iter().map(type_of).collect();
        assert_eq!(given, taken, "{}", launch.entry);
        // Kernels that say how many threads they take are given so many.
        let most = head.lines().find_map(|line| line.strip_prefix(".maxntid "));
        if let Some(most) = most {
            assert_eq!(most, format!("{}, 1, 1", launch.threads), "{}", launch.entry);
        }
        assert_eq!(launch.threads % 32, 0, "{}: whole warps", launch.entry);
        // What a block of threads may have on an A100.
        assert!(
            launch.shared_bytes <= 163 * 1024,
            "{}: {} bytes",
            launch.entry,
            launch.shared_bytes
        );
    }
}

fn type_of(argument: &Argument) -> &'static str {
    match argument {
        Argument::Pointer(_) | Argument::I64(_) => "u64",
        Argument::U32(_) | Argument::I32(_) => "u32",
        Argument::F32(_) => "f32",
        Argument::TensorMap(_) => "align",
    }
}

#[test]
fn every_kernel_has_a_launch() {
    let launches = every_launch();
    let launched: BTreeSet<&str> = launches.iter().map(|launch| launch.entry).collect();
    let modules: BTreeSet<&str> = launches.iter().map(|launch| launch.ptx).collect();
    let entries = modules.iter().flat_map(|ptx| ptx.split(".visible .entry ").skip(1));
    let there: BTreeSet<&str> = entries.map(|rest| rest.split_once('(').unwrap().0).collect();
    assert_eq!(launched, there);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/ptx");
    assert_eq!(modules.len(), std::fs::read_dir(folder).unwrap().count());
}

#[test]
fn grids_cover_every_row_and_column() {
    assert_eq!(ARGMAX.launch().unwrap().grid, [3, 7, 1]);
    assert_eq!(SWIGLU.launch().unwrap().grid, [2, 5, 1]);
    assert_eq!(SwiGlu { width: 256, ..SWIGLU }.launch().unwrap().grid, [1, 5, 1]);
    let launch = ROPE_CACHE.launch().unwrap();
    assert_eq!((launch.grid, launch.threads), ([12, 9, 1], 64));
    // 33 queries of 4 heads to a kv head: 132 rows, by 64 and by 16; 300 keys in two splits.
    assert_eq!(PAGED.prefill().unwrap().grid, [3, 2, 3]);
    let [decode, join] = PAGED.decode(WORKSPACE).unwrap();
    assert_eq!((decode.grid, join.grid), ([2, 18, 3], [8, 33, 3]));
    // Of 100 splits each block of threads has one, as long as blocks are few; of many requests' it has several.
    let long = Batch { most_keys: 25_600, table_width: 1_600, ..BATCH };
    for (requests, across) in [(1, 100), (3, 76), (16, 32), (65_535, 32)] {
        let batch = Batch { requests, ..long };
        let [decode, _] = PagedAttention { batch, ..PAGED }.decode(WORKSPACE).unwrap();
        assert_eq!(decode.grid, [across, 18, requests as u32]);
    }
    // An output's 512 columns by 128.
    let [_, join] = MLA.decode(WORKSPACE).unwrap();
    assert_eq!(join.grid, [16 * 4, 33, 3]);
    // 33 queries of 16 heads by 32.
    assert_eq!(MLA.prefill().unwrap().grid, [17, 1, 3]);
    assert_eq!(GEMM.prefill().unwrap().grid, [1, 1, 1]);
    let grids =
        |launches: Vec<Launch>| launches.iter().map(|launch| launch.grid).collect::<Vec<_>>();
    assert_eq!(grids(GEMM.decode(0).unwrap()), [[1, 3, 2], [5, 1, 1]]);
    assert_eq!(grids(Gemm { rows: 65, ..GEMM }.decode(0).unwrap())[0], [2, 3, 2]);
    // Where one split is all, or blocks are many, each has all of its outputs' inputs.
    assert_eq!(grids(Gemm { inputs: 256, ..GEMM }.decode(0).unwrap()), [[1, 1, 2]]);
    let wide = Gemm { outputs: 191 * 64, ..GEMM };
    assert_eq!(grids(wide.decode(0).unwrap())[0], [1, 3, 191]);
    assert_eq!(parts(5, wide.outputs, wide.inputs), 3 * 5 * wide.outputs);
    let wider = Gemm { outputs: wide.outputs + 8, ..wide };
    assert_eq!(grids(wider.decode(0).unwrap()), [[1, 1, 192]]);
    assert_eq!(parts(5, wider.outputs, wider.inputs), 0);
    // What is left to be added is where room was given for it; what is whole is where it should be.
    let product = |gemm: Gemm| {
        let (launch, product) = Gemm { out: 16, ..gemm }.decode_parts(32).unwrap();
        (launch.grid, product)
    };
    assert_eq!(product(wide), ([1, 3, 191], Product::Parts { parts: 32, splits: 3 }));
    assert_eq!(product(wider), ([1, 1, 192], Product::Whole(16)));
    assert_eq!(product(Gemm { inputs: 256, ..GEMM }), ([1, 1, 2], Product::Whole(16)));
    let tiles = |rows, outputs| Gemm { rows, outputs, ..GEMM }.prefill_hopper().unwrap().grid;
    assert_eq!([tiles(17, 72), tiles(129, 384), tiles(257, 392)], [1, 4, 9].map(|n| [n, 1, 1]));
    assert_eq!(STEPS.launch(Step::Tiled).unwrap().grid, [3, 4, 1]);
}

#[test]
fn shapes_that_do_not_fit_are_refused_by_name() {
    let refused = |result: Result<Launch, cuda_kernels::Error>| result.unwrap_err().to_string();
    assert_eq!(
        refused(RopeCache { head_dim: 80, ..ROPE_CACHE }.launch()),
        "rope_cache: head size is 80; it must be 64 or 128"
    );
    let scales =
        CacheScales { code: Code::Int8, keys: 0, values: 0, block_stride: 0, head_stride: 0 };
    let cache = Cache { scales: Some(scales), ..CACHE };
    assert_eq!(
        refused(RopeCache { qkv: PARTS, cache, ..ROPE_CACHE }.launch()),
        "rope_cache_int8: number of splits is 3; it must be 1, in bf16"
    );
    let add = |splits, width| {
        let x = Product::Parts { parts: 0, splits };
        AddRmsNorm { x, width, ..ADD_RMS_NORM }.launch()
    };
    add(usize::from(u16::MAX), 12_032).unwrap();
    assert!([1, 12, 24].iter().all(|&splits| AddRmsNorm::adds(splits, 12_032)));
    assert!(!AddRmsNorm::adds(25, 64) && !AddRmsNorm::adds(1, 12_033));
    assert_eq!(
        refused(add(3, 12_033)),
        "add_rms_norm_parts: width is 12033; it must be from 1 to 12032"
    );
    assert_eq!(
        refused(add(3, 102)),
        "add_rms_norm_parts: width is 102; it must be a multiple of 4"
    );
    assert_eq!(
        refused(add(0, 100)),
        format!(
            "add_rms_norm_parts: number of splits is 0; it must be from 1 to {}",
            i32::MAX - 256
        )
    );
    assert_eq!(
        refused(SwiGlu { rows: 65_536, ..SWIGLU }.launch()),
        "swiglu: number of rows is 65536; it must be from 1 to 65535"
    );
    assert_eq!(
        refused(PagedAttention { heads: 7, ..PAGED }.prefill()),
        "paged_prefill_64: number of heads is 7; it must be a multiple of kv heads"
    );
    let strides = |head_stride, block_stride| Cache { head_stride, block_stride, ..CACHE };
    let hopper = |cache| refused(PagedAttention { cache, ..PAGED }.prefill_hopper(99, 1000));
    assert_eq!(
        hopper(strides(1024, 5000)),
        "paged_prefill_hopper_64: elements from a block to the next is 5000; it must be 2 times 1024, or a larger multiple"
    );
    assert_eq!(
        hopper(strides(1000, 5000)),
        "paged_prefill_hopper_64: elements from a kv head to the next is 1000; it must be a multiple of 8, at least 1024"
    );
    assert_eq!(
        hopper(strides(1024, -2048)),
        "paged_prefill_hopper_64: elements from a block to the next is 0; it must be 2 times 1024, or a larger multiple"
    );
    let scales =
        CacheScales { code: Code::Fp8, keys: 0, values: 0, block_stride: 0, head_stride: 0 };
    assert_eq!(
        hopper(Cache { scales: Some(scales), ..strides(1024, 2048) }),
        "paged_prefill_hopper_64: bytes of a key's element is 1; it must be 2, which is bf16"
    );
    for (rows, blocks) in [(0, 5), (5, 0), (usize::MAX, 5), (5, usize::MAX)] {
        let paged = PagedAttention { cache: strides(1024, 2048), ..PAGED };
        assert!(paged.prefill_hopper(rows, blocks).is_err());
    }
    assert_eq!(
        refused(Gemm { inputs: 100, ..GEMM }.prefill()),
        "gemm_prefill: number of inputs is 100; it must be a multiple of 8"
    );
    let wide = Gemm { rows: 1, outputs: 65_535 * 64, ..GEMM };
    wide.decode(0).unwrap();
    assert_eq!(
        Gemm { outputs: wide.outputs + 8, ..wide }.decode(0).unwrap_err().to_string(),
        "gemm_decode_16: tiles of outputs is 65536; it must be from 1 to 65535"
    );
    assert_eq!(
        refused(Gemm { weights: INT4, ..GEMM }.prefill()),
        "gemm_prefill_int4: number of inputs is 520; it must be a multiple of 32"
    );
    assert_eq!(
        Blocks::of_rows(&[0; 50], 1, 16).unwrap_err().to_string(),
        "a matrix of blocks: number of bytes is 50; it must be 1 rows of blocks of 18 bytes"
    );
    assert!(Blocks::of_rows(&[], 0, 16).is_err());
    assert_eq!(
        refused(Gemm { weights: FP8, ..GEMM }.prefill_hopper()),
        "gemm_prefill_hopper: bytes of a weight, rounded up is 1; it must be 2, which is bf16"
    );
    let batch = Batch { table_width: 18, ..BATCH };
    assert_eq!(
        refused(PagedAttention { batch, ..PAGED }.prefill()),
        "paged_prefill_64: keys of a request is 300; it must be at most the 288 that a table has room for"
    );
    for heads in [0, usize::MAX] {
        assert!(PagedAttention { heads, ..PAGED }.decode(WORKSPACE).is_err());
        assert!(PagedAttention { kv_heads: heads, ..PAGED }.decode(WORKSPACE).is_err());
        assert!(MlaAttention { heads, ..MLA }.decode(WORKSPACE).is_err());
        assert!(MlaAttention { heads, ..MLA }.prefill().is_err());
        assert!(RopeCache { heads, ..ROPE_CACHE }.launch().is_err());
        assert!(StepAttention { heads, ..STEPS }.launch(Step::Naive).is_err());
        assert!(StepAttention { kv_heads: heads, ..STEPS }.launch(Step::Naive).is_err());
    }
    for many in [0, usize::MAX, usize::MAX - 7] {
        assert!(RmsNorm { rows: many, ..RMS_NORM }.launch().is_err());
        assert!(RmsNorm { width: many, ..RMS_NORM }.launch().is_err());
        assert!(Argmax { vocabulary: many, ..ARGMAX }.launch().is_err());
        assert!(Gemm { rows: many, ..GEMM }.prefill().is_err());
        assert!(Gemm { rows: many, ..GEMM }.prefill_hopper().is_err());
        assert!(Gemm { outputs: many, ..GEMM }.decode(0).is_err());
        for batch in [
            Batch { requests: many, ..BATCH },
            Batch { most_queries: many, ..BATCH },
            Batch { most_keys: many, ..BATCH },
            Batch { table_width: many, most_keys: many, ..BATCH },
        ] {
            assert!(PagedAttention { batch, ..PAGED }.prefill().is_err());
            assert!(PagedAttention { batch, ..PAGED }.decode(WORKSPACE).is_err());
        }
    }
    assert!(PagedAttention { scale: f32::NAN, ..PAGED }.prefill().is_err());
    assert!(PagedAttention { scale: 0.0, ..PAGED }.prefill().is_err());
    for scale in [0.0, -0.125, f32::NAN, f32::INFINITY] {
        let refused = refused(HopperAttention { scale, ..HOPPER }.launch());
        assert!(
            refused.starts_with("attention_06_hopper_64: the scale, rounded is "),
            "{scale}: {refused}"
        );
    }
}

/// Heads are read 16 bytes at a time.
#[test]
fn what_does_not_begin_at_16_bytes_is_refused_by_name() {
    let refused = |cache| {
        let paged = PagedAttention { cache, ..PAGED };
        let said = paged.prefill().unwrap_err().to_string();
        let decode = paged.decode(WORKSPACE).unwrap_err().to_string();
        assert_eq!(said.replace("prefill", "decode"), decode);
        said
    };
    assert_eq!(
        refused(Cache { head_stride: 1025, ..CACHE }),
        "paged_prefill_64: elements from a kv head to the next is 1025; it must be a multiple of 8"
    );
    assert_eq!(
        refused(Cache { block_stride: -2052, ..CACHE }),
        "paged_prefill_64: elements from a block to the next is 2052; it must be a multiple of 8"
    );
    assert_eq!(
        refused(Cache { values: 24, ..CACHE }),
        "paged_prefill_64: where values begin is 24; it must be a multiple of 16"
    );
    assert!(refused(Cache { keys: 8, ..CACHE }).contains("where keys begin is 8"));
    // Of bytes, twice as many elements lie in 16.
    let code = Code::Int8;
    let scales = Some(CacheScales { code, keys: 0, values: 0, block_stride: 0, head_stride: 0 });
    let in_bytes = |head_stride| Cache { head_stride, scales, ..CACHE };
    assert!(refused(in_bytes(1032)).contains("is 1032; it must be a multiple of 16"));
    PagedAttention { cache: in_bytes(1040), ..PAGED }.prefill().unwrap();
    for paged in [PagedAttention { out: 2, ..PAGED }, PagedAttention { queries: 2, ..PAGED }] {
        let said = paged.prefill().unwrap_err().to_string();
        assert!(said.ends_with("is 2; it must be a multiple of 16"), "{said}");
    }
    let cache = Cache { values: 8, head_stride: 1024, block_stride: 2048, ..CACHE };
    let hopper = PagedAttention { cache, ..PAGED }.prefill_hopper(99, 1000);
    assert!(hopper.unwrap_err().to_string().contains("where values begin is 8"));
    for (gemm, what) in [
        (Gemm { out: 8, ..GEMM }, "the output begins"),
        (Gemm { x: 8, ..GEMM }, "x begins"),
        (Gemm { weights: Weights::Bf16(8), ..GEMM }, "weights begin"),
    ] {
        let said = gemm.prefill_hopper().unwrap_err().to_string();
        assert_eq!(
            said,
            format!("gemm_prefill_hopper: where {what} is 8; it must be a multiple of 16")
        );
    }
    for mla in [
        MlaAttention { block_stride: 9217, ..MLA },
        MlaAttention { latents: 8, ..MLA },
        MlaAttention { queries: 8, ..MLA },
        MlaAttention { out: 8, ..MLA },
    ] {
        assert!(mla.prefill().unwrap_err().to_string().contains("must be a multiple of"));
        assert!(mla.decode(WORKSPACE).unwrap_err().to_string().contains("must be a multiple of"));
    }
}
