//! The rules find the fusions, and a fused block says the same.

use flash_attention::fusion::{
    Counted, Fused, Graph, Op, Program, Wire, fuse, fuse_add_norm, fuse_rope, llama, merge_linears,
};
use flash_attention::packed::Calibration;
use flash_attention::threads::Pool;
use naive_decode::{
    Config, Isa, LoadOptions, Model, NaiveAttention, Pass, Span, Want, dense, random_tensors,
};
use ndarray::{Array2, Axis};

const LAYERS: usize = 2;
const VOCAB: usize = 40;

fn config() -> Config {
    let json = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "hidden_size": 40, "num_hidden_layers": {LAYERS},
            "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 12,
            "intermediate_size": 56, "vocab_size": {VOCAB}, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 160, "tie_word_embeddings": false}}"#
    );
    Config::from_json("config.json", json.as_bytes()).unwrap()
}

fn tokens() -> Vec<u32> {
    (0..26u32).map(|i| (i * i + 5 * i) % VOCAB as u32).collect()
}

fn ops(graph: &Graph) -> Vec<String> {
    let short = |name: &str| {
        let parts: Vec<&str> = name.split('.').collect();
        parts[parts.len() - 2].to_string()
    };
    let name = |op: &Op| match op {
        Op::Norm(weight) => short(weight),
        Op::AddNorm(weight) => format!("add, {}", short(weight)),
        Op::Linear(matrices) => {
            matrices.iter().map(|(name, _)| short(name)).collect::<Vec<_>>().join(" + ")
        }
        Op::Attention { turns: true } => "RoPE, attention".into(),
        other => format!("{other:?}"),
    };
    graph.nodes()[1..].iter().map(|node| name(&node.op)).collect()
}

#[test]
fn the_rules_find_every_fusion_of_a_block() {
    let graph = llama(&config(), 0..1);
    assert_eq!(graph.nodes().len() - 1, 16);
    assert_eq!(
        ops(&fuse(&graph)),
        [
            "input_layernorm",
            "q_proj + k_proj + v_proj",
            "RoPE, attention",
            "o_proj",
            "add, post_attention_layernorm",
            "gate_proj + up_proj",
            "SiluMul",
            "down_proj",
            "add, norm",
        ]
    );
    // In any order, and again, they find the same.
    let other_order = merge_linears(&fuse_add_norm(&fuse_rope(&graph)));
    assert_eq!(other_order, fuse(&graph));
    assert_eq!(fuse(&fuse(&graph)), fuse(&graph));
}

/// What somebody else reads as well cannot be taken away.
#[test]
fn a_rotation_that_two_read_stays() {
    let mut graph = Graph::new();
    let x = graph.push(Op::Input, &[], &[8]);
    let q = graph.push(Op::Rope, &[x], &[8]);
    let k = graph.push(Op::Rope, &[x], &[8]);
    let answers = graph.push(Op::Attention { turns: false }, &[q, k, x], &[8]);
    graph.push(Op::Add, &[answers, k], &[8]);
    assert_eq!(fuse_rope(&graph), graph);
}

/// Attention turns queries and keys, and no values.
#[test]
fn a_rotation_of_values_stays() {
    let mut graph = Graph::new();
    let x = graph.push(Op::Input, &[], &[8]);
    let [q, k, v] = [(); 3].map(|()| graph.push(Op::Rope, &[x], &[8]));
    graph.push(Op::Attention { turns: false }, &[q, k, v], &[8]);
    assert_eq!(fuse_rope(&graph), graph);
}

/// What is turned on its way in was turned before all the same.
#[test]
fn a_rotation_before_an_attention_that_turns_stays() {
    let mut graph = Graph::new();
    let x = graph.push(Op::Input, &[], &[8]);
    let q = graph.push(Op::Rope, &[x], &[8]);
    let k = graph.push(Op::Rope, &[x], &[8]);
    graph.push(Op::Attention { turns: true }, &[q, k, x], &[8]);
    assert_eq!(fuse_rope(&graph), graph);
}

#[test]
fn a_sum_that_is_normed_goes_on_as_a_sum_too() {
    let mut graph = Graph::new();
    let x = graph.push(Op::Input, &[], &[4]);
    let sum = graph.push(Op::Add, &[x, x], &[4]);
    let normed = graph.push(Op::Norm("a.norm.weight".into()), &[sum], &[4]);
    graph.push(Op::Add, &[sum, normed], &[4]);
    let fused = fuse_add_norm(&graph);
    let both = [Wire { node: 1, part: 0 }, Wire { node: 1, part: 1 }];
    assert_eq!(fused.nodes()[2].inputs, both);
}

/// The last norm's rows of a program over all layers.
fn run(graph: Graph, isa: Isa) -> (Array2<f32>, Counted) {
    let tensors = random_tensors(3);
    let table = tensors("model.embed_tokens.weight", &[VOCAB, 40]).unwrap();
    let table = Array2::from_shape_vec((VOCAB, 40), table).unwrap();
    let tokens: Vec<usize> = tokens().iter().map(|&token| token as usize).collect();
    let program = Program::new(graph, &config(), &tensors, isa).unwrap();
    program.run(table.select(Axis(0), &tokens)).unwrap()
}

#[test]
fn a_graph_without_its_one_input_is_no_program() {
    let no_input = Program::new(Graph::new(), &config(), &random_tensors(3), Isa::SCALAR);
    let said = no_input.err().unwrap().to_string();
    assert_eq!(said, "a graph to run is 0 operations, expected its input first");
    let mut graph = Graph::new();
    let first = graph.push(Op::Input, &[], &[40]);
    let second = graph.push(Op::Input, &[], &[40]);
    graph.push(Op::Add, &[first, second], &[40]);
    let two = Program::new(graph, &config(), &random_tensors(3), Isa::SCALAR);
    let said = two.err().unwrap().to_string();
    assert_eq!(
        said,
        "a graph to run is an input as operation 1, expected one input, and that first"
    );
}

#[test]
fn a_fused_graph_gives_the_same_bits_in_fewer_sweeps() {
    let graph = llama(&config(), 0..LAYERS);
    let (expected, before) = run(graph.clone(), Isa::SCALAR);
    let rows = tokens().len();
    for isa in Isa::available() {
        for fused in [merge_linears(&graph), fuse_add_norm(&graph), fuse_rope(&graph), fuse(&graph)]
        {
            let (found, after) = run(fused.clone(), isa);
            assert_eq!(found, expected);
            assert!(after.sweeps < before.sweeps && after.bytes.moved() < before.bytes.moved());
            let (read, written) = fused.numbers_per_row();
            assert_eq!(
                (after.bytes.read, after.bytes.written),
                (4 * rows * read, 4 * rows * written)
            );
        }
    }
    let (_, after) = run(fuse(&graph), Isa::best());
    assert_eq!((before.sweeps, after.sweeps), (15 * LAYERS + 1, 8 * LAYERS + 1));
}

fn logits(model: &Model, tokens: &[u32]) -> Array2<f32> {
    let pass = Pass::one(Span::new(0, 0, tokens, Want::All));
    model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap()
}

#[test]
fn the_graph_is_the_models_and_the_fused_model_says_the_same() {
    for isa in Isa::available() {
        let options = LoadOptions { isa, ..LoadOptions::default() };
        let (tensors, pack) = (random_tensors(3), dense(isa));
        let plain = Model::assemble(config(), options, &tensors, &pack).unwrap();
        // So many rows that threads share them out.
        let (short, long) = (tokens(), tokens().repeat(6));
        let expected = logits(&plain, &short);
        for threads in 1..4 {
            let fused = Fused::new(&pack, &Pool::new(threads));
            let fused = Model::assemble(config(), options, &tensors, &fused).unwrap();
            assert_eq!(logits(&fused, &short), expected);
            assert_eq!(logits(&fused, &long), logits(&plain, &long), "{threads} threads");
            assert_eq!(fused.kv_bytes_per_token(), plain.kv_bytes_per_token());
        }
        let (normed, _) = run(llama(&config(), 0..LAYERS), isa);
        assert_eq!(plain.head.apply(normed.view()), expected);
    }
}

#[test]
fn rows_that_nobody_reads_end_with_the_last_attention() {
    let (isa, options, tensors) = (Isa::best(), LoadOptions::default(), random_tensors(3));
    let (dense, pool) = (dense(isa), Pool::new(2));
    let plain = Model::assemble(config(), options, &tensors, &dense).unwrap();
    let said = |model: &Model, pass: &Pass| {
        model.forward(pass, &mut NaiveAttention::new(model.isa)).unwrap()
    };
    let rows = tokens().len();
    for (want, read) in [(Want::All, rows), (Want::Last, 1), (Want::Nothing, 0)] {
        let watched = Calibration::new(isa);
        let fused = Fused::new(&watched, &pool);
        let fused = Model::assemble(config(), options, &tensors, &fused).unwrap();
        let pass = Pass::one(Span::new(0, 0, &tokens(), want));
        assert_eq!(said(&fused, &pass), said(&plain, &pass), "{want:?}");
        // The head; then of each block queries, keys and values; output; gate and up; down.
        let met: Vec<usize> = watched.seen().iter().map(|seen| seen.rows).collect();
        let expected = [read, rows, rows, rows, rows, rows, read, read, read];
        assert_eq!(met, expected, "{want:?}");
    }
    let fused = Fused::new(&dense, &pool);
    let fused = Model::assemble(config(), options, &tensors, &fused).unwrap();
    // Several texts in one pass, of which the first and the last are read.
    let wants = [Want::Last, Want::Nothing, Want::All];
    let span = |(text, want)| Span::new(text, 0, &tokens()[text..], want);
    let pass = Pass { spans: wants.into_iter().enumerate().map(span).collect() };
    assert_eq!(said(&fused, &pass), said(&plain, &pass));
    let hidden = |model: &Model| model.hidden(&pass, &mut NaiveAttention::new(isa)).unwrap();
    assert_eq!(hidden(&fused), hidden(&plain));
    // The first block may be the last.
    let one = Config { layers: 1, ..config() };
    let fused = Fused::new(&dense, &pool);
    let fused = Model::assemble(one.clone(), options, &tensors, &fused).unwrap();
    let plain = Model::assemble(one, options, &tensors, &dense).unwrap();
    assert_eq!(said(&fused, &pass), said(&plain, &pass));
}

/// What the plain model refuses, whichever thread finds it.
#[test]
fn a_position_past_the_table_is_refused() {
    let (tensors, pack, pool) = (random_tensors(3), dense(Isa::best()), Pool::new(2));
    let fused = Fused::new(&pack, &pool);
    let model = Model::assemble(config(), LoadOptions::default(), &tensors, &fused).unwrap();
    let (x, mut positions) = (Array2::zeros((120, 40)), vec![0; 120]);
    let project = |positions: &[usize]| {
        model.blocks[0].projection.project(x.view(), positions, &model.rope).map(|_| ())
    };
    assert!(project(&positions).is_ok());
    positions[119] = 160;
    let said = project(&positions).unwrap_err().to_string();
    assert!(said.contains("160") && said.contains("161"), "{said}");
}
