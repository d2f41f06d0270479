//! `ladder gpu-check` with the interpreter for a GPU: everything runs, and a wrong kernel is found. No time means anything.

use cuda_kernels::{
    DeviceError, DeviceResult, Gpu, Interpreter, Launch, Recording, check, forward_gpu,
};
use embedded_models::TARGET;
use model_files::ModelFiles;
use naive_decode::Config;
use serving::gpu_check::bench::{self, Shape, Shapes};
use serving::gpu_check::{checked, decode, tokens};

fn hopper() -> Interpreter {
    let mut gpu = Interpreter::new();
    gpu.is_hopper = true;
    gpu
}

#[test]
fn the_embedded_model_says_what_it_says_on_the_processor() {
    let files = ModelFiles::embedded(&TARGET).unwrap();
    let prompts = ["The word of Ada is", "Once upon a"];
    let compared = tokens::compare_texts(Interpreter::new(), &files, &prompts, 3).unwrap();
    assert_eq!((compared.steps, compared.wrong, compared.problem()), (6, 0, None));
    assert!(compared.certain >= 3, "{compared:?}");
    assert!(compared.furthest.iter().all(|&off| off < 0.1), "{compared:?}");
}

#[test]
fn every_kind_of_bench_runs() {
    let (heads, kv_heads, head_dim) = (2, 1, 64);
    let prefill = |is_causal| Shape::Prefill { tokens: 40, heads, kv_heads, head_dim, is_causal };
    let shapes = vec![
        Shape::Copy { bytes: 4096 },
        prefill(true),
        prefill(false),
        Shape::Decode { batch: 2, keys: 40, heads, kv_heads, head_dim },
        Shape::Mla { batch: 1, keys: 20, heads: 4 },
        Shape::Gemm { rows: 2, outputs: 64, inputs: 64 },
        Shape::Gemm { rows: 65, outputs: 64, inputs: 64 },
    ];
    // Keys and values of 20,480 bytes, latents of 23,040, and weights of 8,192.
    let shapes = Shapes { shapes, samples: 1, cold_bytes: 40_960 };
    let copies: Vec<usize> = shapes.shapes.iter().map(|&shape| shapes.copies(shape)).collect();
    assert_eq!(copies, [1, 1, 1, 2, 2, 5, 5]);
    let timed = bench::all(&mut || Ok(hopper()), &shapes).unwrap();
    let names: Vec<&str> = timed.iter().map(|timed| timed.name).collect();
    let [paged, its] = ["paged_prefill", "paged_prefill_hopper"];
    let expected = ["copy", "attention_06_hopper", paged, its, "attention_06_hopper"];
    assert_eq!(names[..5], expected);
    let [gemm, its] = ["gemm_prefill", "gemm_prefill_hopper"];
    assert_eq!(names[5..], ["paged_decode", "mla_decode", "gemm_decode", gemm, its]);
    assert!(timed.iter().all(|timed| timed.seconds.len() == 1 && timed.bytes > 0.0));
    // Four operations for each element of a head and pair of a query and a key; half of the pairs.
    assert_eq!((timed[1].flops, timed[4].flops), (409_600.0, 819_200.0));
    // Keys and values of both requests once, their queries and outputs.
    assert_eq!(timed[5].bytes, f64::from(2 * 2 * 40 * 64 * 2 + 2 * 2 * 2 * 64 * 2));
    assert_eq!(timed[7].flops, f64::from(2 * 2 * 64 * 64));
}

#[test]
fn steps_are_timed_with_graphs_and_without() {
    let steps = decode::all(&mut || Ok(Interpreter::new()), &[tiny()]).unwrap();
    let kinds: Vec<_> = steps.iter().map(|steps| (steps.batch, steps.with_graphs)).collect();
    assert_eq!(kinds, [(1, true), (3, true), (1, false), (3, false)]);
    assert!(steps.iter().all(|steps| steps.seconds.len() == 2));
    // Queries, keys, values and outputs of heads of 8; the feed-forward; the head.
    let weights = 16 * 8 * (2 + 1 + 1 + 2) + 3 * 16 * 24 + 32 * 16;
    assert_eq!(steps[0].weight_bytes, 2 * weights);
    // Heads are filled up to 64.
    assert_eq!(steps[1].kv_bytes, 3 * 5 * 2 * 64 * 2);
}

#[test]
fn launches_are_not_timed_as_graphs() {
    let refused = decode::all(&mut || Ok(Lazy(Interpreter::new(), "record")), &[tiny()]);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("tiny, 1 at once: a step could not be recorded"), "{refused}");
}

/// Steps of a model that is no larger than it must be.
fn tiny() -> decode::Shape {
    let config = Config {
        hidden_size: 16,
        layers: 1,
        heads: 2,
        kv_heads: 1,
        head_dim: 8,
        intermediate_size: 24,
        vocab_size: 32,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: None,
        trained_context: 64,
        tied_head: true,
        end_tokens: Vec::new(),
    };
    decode::Shape { name: "tiny", config, batches: vec![1, 3], depth: 5, steps: 2 }
}

/// A device that does not run one of the kernels, or of which "record" does not work.
struct Lazy(Interpreter, &'static str);

impl Gpu for Lazy {
    forward_gpu!(0: is_hopper alloc write read copy prepare replay finish);

    fn launch(&mut self, launch: &Launch) -> DeviceResult<()> {
        if launch.entry == self.1 { Ok(()) } else { self.0.launch(launch) }
    }

    fn record(&mut self, launches: &[Launch]) -> DeviceResult<Recording> {
        match self.1 {
            "record" => Err(DeviceError("cannot make a graph".into())),
            _ => self.0.record(launches),
        }
    }
}

#[test]
fn a_kernel_that_is_wrong_is_named_and_one_for_other_devices_is_left_out() {
    let mut lazy = Lazy(Interpreter::new(), "gemm_prefill");
    let checks = check::all();
    let named = |name: &str| checks.iter().find(|check| check.name == name).unwrap();
    let problem = checked(named("matrix products"), &mut lazy).unwrap().problem.unwrap();
    assert!(problem.starts_with("matrix products: products, 1 x 8 x 8"), "{problem}");
    assert_eq!(checked(named("sampling"), &mut lazy).unwrap().problem, None);
    let hopper = checked(named("attention, step 6"), &mut lazy).unwrap();
    assert!(hopper.problem.is_none() && hopper.left_out.is_some());
}

#[test]
fn a_model_that_says_something_else_is_named() {
    let files = ModelFiles::embedded(&TARGET).unwrap();
    let lazy = Lazy(Interpreter::new(), "gemm_decode_swiglu_16");
    let compared = tokens::compare_texts(lazy, &files, &["The word of Ada is"], 2).unwrap();
    assert!(compared.wrong > 0, "{compared:?}");
    assert!(compared.problem().unwrap().contains("not those of the processor"));
}

#[test]
fn a_prompt_of_many_rows_is_compared_too() {
    let files = ModelFiles::embedded(&TARGET).unwrap();
    let prompt = "The word of Ada is amber. ".repeat(12);
    for (kernel, is_noticed) in [("none", false), ("paged_prefill_64", true)] {
        let lazy = Lazy(Interpreter::new(), kernel);
        let compared = tokens::compare_texts(lazy, &files, &[&prompt], 1).unwrap();
        assert_eq!(compared.furthest.iter().any(|&off| off >= 0.1), is_noticed, "{compared:?}");
    }
}
