//! What configs say, and what becomes of it.

use super::checkpoint::{self as tiny, Checkpoint, with};
use gqa_mla::evict::{Budget, EvictingCache, Sinks};
use kv_cache::RopeScaling;
use model_files::{Architecture, ModelFiles};
use naive_decode::{
    Config, LoadOptions, Model, NaiveAttention, Pass, Span, Want, dense, random_tensors,
};
use serde_json::{Value, json};

fn read(config: &Value) -> Architecture {
    Architecture::from_json("config.json", config.to_string().as_bytes()).unwrap()
}

fn random(config: &Value) -> Model {
    read(config).random(5, LoadOptions::default()).unwrap()
}

fn windows(config: &Value) -> Vec<Option<usize>> {
    random(config).blocks.iter().map(|block| block.window).collect()
}

fn logits(model: &Model) -> Vec<f32> {
    let pass = Pass::one(Span::new(0, 0, &tiny::tokens(25), Want::All));
    model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap().into_iter().collect()
}

#[test]
fn windows_are_where_each_family_has_them() {
    let (w, full) = (Some(9), None);
    assert_eq!(windows(&tiny::llama()), [full; 3]);
    assert_eq!(windows(&tiny::mistral()), [w; 3]);
    assert_eq!(windows(&tiny::qwen2()), [full; 3]);
    let used = json!({ "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1 });
    assert_eq!(windows(&with(tiny::qwen2(), used)), [full, w, w]);
    assert_eq!(windows(&tiny::phi3()), [full; 3]);
    assert_eq!(windows(&with(tiny::phi3(), json!({ "sliding_window": 9 }))), [w; 3]);
    assert_eq!(windows(&tiny::gemma2()), [w, full, w]);
    assert_eq!(windows(&tiny::gemma3()), [w, w, full]);
    let said = json!({ "layer_types": ["full_attention", "sliding_attention", "full_attention"] });
    assert_eq!(windows(&with(tiny::gemma3(), said)), [full, w, full]);
    assert_eq!(windows(&tiny::hybrid()), [w, w, full]);
    assert_eq!(windows(&tiny::olmo2()), [full; 3]);
    assert_eq!(windows(&tiny::olmo3()), [w, w, full]);
    let unsaid = json!({ "layer_types": null, "num_hidden_layers": 5, "rope_scaling": null });
    assert_eq!(windows(&with(tiny::olmo3(), unsaid)), [w, w, w, full, w]);
}

#[test]
fn layers_that_do_not_turn_are_those_that_are_listed_or_every_fourth() {
    let logits = |fields: Value| logits(&random(&with(tiny::smollm3(), fields)));
    let listed = |turns: Value| json!({ "num_hidden_layers": 4, "no_rope_layers": turns });
    let every = |interval: Value| json!({ "num_hidden_layers": 4, "no_rope_layers": null, "no_rope_layer_interval": interval });
    assert!(logits(every(json!(null))) == logits(listed(json!([1, 1, 1, 0]))));
    assert!(logits(every(json!(2))) == logits(listed(json!([1, 0, 1, 0]))));
    assert!(logits(every(json!(2))) != logits(every(json!(4))));
    // Where all turn, it is Llama.
    let llama = with(tiny::llama(), json!({ "num_hidden_layers": 4, "tie_word_embeddings": true }));
    assert!(logits(listed(json!([1, 1, 1, 1]))) == self::logits(&random(&llama)));
    // A list may be longer than the model.
    assert!(logits(listed(json!([1, 1, 1, 0, 0, 1]))) == logits(listed(json!([1, 1, 1, 0]))));
    // What is left out is as Hugging Face has it.
    let mut bare = with(tiny::smollm3(), json!({ "rope_theta": null, "max_window_layers": null }));
    let shape = |config: &Value| (read(config).config.rope_theta, read(config).config.kv_heads);
    bare["num_key_value_heads"] = Value::Null;
    assert_eq!(shape(&bare), (2e6, read(&bare).config.heads), "one for each query head");
    bare.as_object_mut().unwrap().remove("num_key_value_heads");
    assert_eq!(shape(&bare), (2e6, 4));
    bare["rope_parameters"] = json!({ "rope_type": "default" });
    assert_eq!(shape(&bare), (2e6, 4));
    bare["rope_parameters"] = json!({ "rope_theta": 5e6 });
    assert_eq!(shape(&bare), (5e6, 4));
    let slides = json!({ "use_sliding_window": true, "sliding_window": 9 });
    assert_eq!(windows(&with(tiny::smollm3(), slides)), [None, None, Some(9)]);
    let unused = json!({ "use_sliding_window": null, "sliding_window": 9 });
    assert_eq!(windows(&with(tiny::smollm3(), unused)), [None; 3]);
    // Embeddings are tied unless it is said that they are not.
    assert!(read(&with(tiny::smollm3(), json!({ "tie_word_embeddings": null }))).config.tied_head);
}

#[test]
fn newer_configs_of_gemma_say_the_same_by_kind_of_layer() {
    let newer = json!({ "rope_theta": null, "rope_local_base_freq": null, "rope_parameters": {
        "full_attention": { "rope_type": "default", "rope_theta": 500000.0 },
        "sliding_attention": { "rope_type": "default", "rope_theta": 20000.0 },
    }});
    let older = json!({ "rope_theta": 500000.0, "rope_local_base_freq": 20000.0 });
    let [newer, older] = [newer, older].map(|fields| with(tiny::gemma3(), fields));
    assert_eq!(read(&newer).config, read(&older).config);
    assert!(logits(&random(&newer)) == logits(&random(&older)));
    // And both bases count.
    assert!(logits(&random(&older)) != logits(&random(&tiny::gemma3())));
    let slower = with(older.clone(), json!({ "rope_local_base_freq": 10000.0 }));
    assert!(logits(&random(&older)) != logits(&random(&slower)));
}

/// Layers with a window turn as the model was trained at first, and only the others are stretched.
#[test]
fn of_an_olmo_3_the_layers_that_see_everything_are_stretched() {
    let stretched = |fields: Value| {
        let scaling = tiny::olmo3()["rope_scaling"].clone();
        with(fields, json!({ "rope_scaling": scaling }))
    };
    let kinds = |kind: &str, window: usize| {
        let fields = json!({ "layer_types": [kind, kind, kind], "sliding_window": window });
        logits(&random(&with(tiny::olmo3(), fields)))
    };
    let olmo2 = |config: &Value| logits(&random(config));
    assert!(kinds("full_attention", 9) == olmo2(&stretched(tiny::olmo2())));
    // A window as wide as the text is none.
    assert!(kinds("sliding_attention", 25) == olmo2(&tiny::olmo2()));
    assert!(kinds("sliding_attention", 9) != olmo2(&tiny::olmo2()));
    assert!(olmo2(&stretched(tiny::olmo2())) != olmo2(&tiny::olmo2()));
    // Newer configs say it by kind of layer.
    let base = with(tiny::olmo3(), json!({ "rope_theta": 500000.0 }));
    let mut global = base["rope_scaling"].clone();
    global["rope_theta"] = json!(500000.0);
    let newer = |local: f64| {
        let parameters = json!({ "full_attention": global.clone(),
            "sliding_attention": { "rope_type": "default", "rope_theta": local } });
        with(
            base.clone(),
            json!({ "rope_theta": null, "rope_scaling": null, "rope_parameters": parameters }),
        )
    };
    assert!(logits(&random(&newer(500000.0))) == logits(&random(&base)));
    assert!(logits(&random(&newer(10000.0))) != logits(&random(&base)));
}

#[test]
fn the_length_that_gemma_3_names_is_the_one_it_was_stretched_to() {
    let context = |config: &Value| {
        let config = read(config).config;
        let scaling = config.rope_scaling.as_ref().unwrap();
        RopeScaling::from_json(scaling, &config).unwrap().context(&config)
    };
    // What the 4B says of itself; all else is Gemma3TextConfig's.
    let linear = json!({ "factor": 8.0, "rope_type": "linear" });
    let config = json!({ "architectures": ["Gemma3ForConditionalGeneration"], "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
        "num_hidden_layers": 34, "rope_scaling": linear, "sliding_window": 1024 } });
    assert_eq!(context(&config), 131_072);
    let mut newer = config.clone();
    newer["text_config"]["rope_scaling"] = Value::Null;
    newer["text_config"]["rope_parameters"] = json!({
        "full_attention": { "factor": 8.0, "rope_type": "linear", "rope_theta": 1000000.0 },
        "sliding_attention": { "rope_type": "default", "rope_theta": 10000.0 } });
    assert_eq!(context(&newer), 131_072);
    let tiny = with(tiny::gemma3(), json!({ "rope_scaling": linear }));
    assert_eq!(random(&tiny).context(), 64);
    // Unless it says what it was stretched from.
    let mut said = tiny.clone();
    said["rope_scaling"]["original_max_position_embeddings"] = json!(32);
    assert_eq!(random(&said).context(), 256);
}

#[test]
fn of_a_gemma_that_sees_the_half_that_reads_is_read() {
    let mut text = tiny::gemma3();
    text.as_object_mut().unwrap().remove("architectures");
    text["eos_token_id"] = Value::Null;
    let config = json!({ "architectures": ["Gemma3ForConditionalGeneration"], "vision_config": {},
        "text_config": text, "eos_token_id": [0, 4] });
    assert_eq!(read(&config).config, read(&tiny::gemma3()).config);
    let plain = Checkpoint::random(tiny::gemma3());
    let named =
        |(name, tensor): (&String, &_)| (format!("language_model.{name}"), Clone::clone(tensor));
    let sees = Checkpoint { config, tensors: plain.tensors.iter().map(named).collect() };
    let open = |checkpoint: &Checkpoint| {
        let directory = tempfile::tempdir().unwrap();
        checkpoint.write(directory.path());
        ModelFiles::open_directory(directory.path()).unwrap()
    };
    let (plain, sees) = (open(&plain), open(&sees));
    let load = |files: &ModelFiles| files.load(LoadOptions::default()).unwrap();
    assert!(logits(&load(&sees)) == logits(&load(&plain)));
    // As it is stored, too, for whoever packs it so.
    let name = "model.layers.0.self_attn.q_proj.weight";
    let [own, expected] = [&sees, &plain].map(|files| files.raw(name).expect("it is there"));
    assert_eq!((own.kind, own.bytes), (expected.kind, expected.bytes));
}

#[test]
fn the_scalar_of_queries_is_a_factor_on_scores() {
    // A quarter of the factor, from queries four times as long: powers of two change no bit.
    let wide = with(tiny::gemma2(), json!({ "query_pre_attn_scalar": 16 * 16 }));
    let random = random_tensors(5);
    let longer = |name: &str, shape: &[usize]| {
        let mut values = random(name, shape)?;
        if name.ends_with("q_proj.weight") {
            values.iter_mut().for_each(|v| *v *= 4.0);
        }
        Ok(values)
    };
    let options = LoadOptions::default();
    let found = read(&wide).assemble(options, &longer, &dense(options.isa)).unwrap();
    assert!(logits(&found) == logits(&self::random(&tiny::gemma2())));
}

/// As in Hugging Face's `GraniteConfig`: the factor on scores is 1, too, where nothing is said.
#[test]
fn what_a_granite_leaves_out_is_1() {
    let fields =
        ["embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"];
    for field in fields {
        let said = logits(&random(&with(tiny::granite(), json!({ field: 1.0 }))));
        let mut silent = tiny::granite();
        silent.as_object_mut().unwrap().remove(field);
        assert!(logits(&random(&silent)) == said, "{field}");
        assert!(logits(&random(&tiny::granite())) != said, "{field}");
    }
    // With Llama's factors it is Llama.
    let plain = fields.map(|field| match field {
        "attention_multiplier" => (field, f64::from(1.0 / 12_f32.sqrt())),
        _ => (field, 1.0),
    });
    let plain: serde_json::Map<_, _> =
        plain.into_iter().map(|(field, factor)| (field.to_owned(), json!(factor))).collect();
    let llama = with(tiny::llama(), json!({ "tie_word_embeddings": true }));
    assert!(
        logits(&random(&with(tiny::granite(), Value::Object(plain)))) == logits(&random(&llama))
    );
}

/// As in Hugging Face's `Gemma2Config`; `null` says that there is none.
#[test]
fn what_a_gemma_2_leaves_out_is_as_usual() {
    let said = json!({ "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        "sliding_window": 4096 });
    let said = with(tiny::gemma2(), said);
    for field in ["attn_logit_softcapping", "final_logit_softcapping", "sliding_window"] {
        let mut silent = said.clone();
        silent.as_object_mut().unwrap().remove(field);
        assert_eq!(windows(&silent), [Some(4096), None, Some(4096)], "{field}");
        assert!(logits(&random(&silent)) == logits(&random(&said)), "{field}");
        let none = with(said.clone(), json!({ field: null }));
        match field {
            "sliding_window" => assert_eq!(windows(&none), [None; 3]),
            _ => assert!(logits(&random(&none)) != logits(&random(&said)), "{field}"),
        }
    }
}

/// As in Hugging Face's `Gemma2Config` and `Gemma3TextConfig`.
#[test]
fn what_a_gemma_leaves_out_of_its_attention_is_as_usual() {
    for base in [tiny::gemma2(), tiny::gemma3()] {
        let said = with(base.clone(), json!({ "query_pre_attn_scalar": 256 }));
        let mut silent = said.clone();
        silent.as_object_mut().unwrap().remove("query_pre_attn_scalar");
        assert!(logits(&random(&silent)) == logits(&random(&said)));
        assert!(logits(&random(&base)) != logits(&random(&said)));
        let mut bare = said.clone();
        for field in ["num_attention_heads", "num_key_value_heads", "head_dim"] {
            bare.as_object_mut().unwrap().remove(field);
        }
        let Config { heads, kv_heads, head_dim, .. } = read(&bare).config;
        assert_eq!((heads, kv_heads, head_dim), (8, 4, 256));
    }
    let mut silent = tiny::gemma3();
    silent.as_object_mut().unwrap().remove("sliding_window");
    assert_eq!(windows(&silent), [Some(4096), Some(4096), None]);
    silent["sliding_window"] = Value::Null;
    assert_eq!(windows(&silent), [None; 3]);
}

#[test]
fn whose_stretching_is_its_own_says_so() {
    let brings = |config: Value| {
        let directory = tempfile::tempdir().unwrap();
        Checkpoint::random(config).write(directory.path());
        ModelFiles::open_directory(directory.path()).unwrap().brings_stretching()
    };
    let linear = json!({ "rope_scaling": { "rope_type": "linear", "factor": 2.0 } });
    for config in [tiny::deepseek2(), tiny::phi3_partly(), with(tiny::llama(), linear)] {
        assert!(brings(config.clone()), "{config}");
    }
    for config in [tiny::deepseek3(), tiny::phi3(), tiny::llama(), tiny::gemma3()] {
        assert!(!brings(config.clone()), "{config}");
    }
}

#[test]
fn caps_bound_scores_and_logits() {
    let capped = logits(&random(&tiny::gemma2()));
    assert!(capped.iter().all(|logit| logit.abs() <= 3.0));
    let free = with(tiny::gemma2(), json!({ "final_logit_softcapping": null }));
    let free = logits(&random(&free));
    assert!(free.iter().any(|logit| logit.abs() > 3.0));
    let bound = |&logit: &f32| (3.0 * (logit as f64 / 3.0).tanh()) as f32;
    let near = |(a, b): (&f32, f32)| (a - b).abs() < 1e-4;
    assert!(capped.iter().zip(free.iter().map(bound)).all(near));
    let flat = with(tiny::gemma2(), json!({ "attn_logit_softcapping": 1e6 }));
    let unbent = with(tiny::gemma2(), json!({ "attn_logit_softcapping": null }));
    let [flat, unbent] = [flat, unbent].map(|config| logits(&random(&config)));
    assert!(flat.iter().zip(unbent.iter().copied()).all(|pair| near((pair.0, pair.1))));
    assert!(!capped.iter().zip(unbent).all(near));
}

#[test]
fn llama_3s_stretching_is_applied_on_loading() {
    let stretch = json!({ "rope_scaling": { "rope_type": "llama3", "factor": 8.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32 } });
    let stretched = with(tiny::llama(), stretch);
    let [model, plain] = [&stretched, &tiny::llama()].map(random);
    let ratio = |j: usize| plain.rope.frequencies()[j] / model.rope.frequencies()[j];
    assert_eq!(ratio(0), 1.0);
    assert!((ratio(5) - 8.0).abs() < 1e-9);
    assert_eq!(model.context(), 64);
    let options = LoadOptions { context: Some(40), ..LoadOptions::default() };
    assert_eq!(read(&stretched).random(5, options).unwrap().context(), 40);
}

#[test]
fn what_phi3s_rope_turns_of_a_head_may_be_said_in_either_place() {
    let newer = json!({ "partial_rotary_factor": null, "rope_parameters":
        { "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5 } });
    let newer = with(tiny::phi3_partly(), newer);
    assert!(logits(&random(&newer)) == logits(&random(&tiny::phi3_partly())));
    let whole = with(tiny::phi3_partly(), json!({ "partial_rotary_factor": null }));
    assert!(logits(&random(&newer)) != logits(&random(&whole)));
}

#[test]
fn keys_that_a_layers_own_rope_turned_are_not_turned_nearer_by_the_models() {
    let said = |config: &Value| {
        let model = random(config);
        let cache = EvictingCache::new(&model, 64, 1, Budget::Entries(8), Sinks::FOUR).unwrap();
        cache.with_positions_in_cache(&model).err().map(|error| error.to_string())
    };
    assert_eq!(said(&tiny::phi3()), None);
    for config in [tiny::phi3_partly(), tiny::gemma3()] {
        let said = said(&config).unwrap();
        assert!(said.starts_with("RoPE of layer 0 is its own, expected the model's"), "{said}");
    }
}

#[test]
fn longrope_turns_with_its_short_factors_as_far_as_they_reach() {
    let long = json!({ "original_max_position_embeddings": 16, "rope_scaling": {
        "type": "longrope", "short_factor": [1.0, 1.0, 1.5, 2.0, 3.0, 4.0],
        "long_factor": [9.0, 9.0, 9.0, 9.0, 9.0, 9.0] } });
    let long = with(tiny::phi3(), long);
    assert_eq!(read(&long).config.trained_context, 16);
    let model = random(&long);
    let run = |tokens: usize| {
        let pass = Pass::one(Span::new(0, 0, &tiny::tokens(tokens), Want::Last));
        model.forward(&pass, &mut NaiveAttention::new(model.isa)).map(|_| ())
    };
    run(16).unwrap();
    assert_eq!(
        run(17).unwrap_err().to_string(),
        "the model's context holds 16 tokens; 17 were asked for"
    );
    // Factors of 1 and no more tokens than before are no stretching at all.
    let ones = json!({ "original_max_position_embeddings": 64, "rope_scaling": {
        "type": "longrope", "short_factor": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "long_factor": [] } });
    let ones = random(&with(tiny::phi3(), ones));
    assert!(logits(&ones) == logits(&random(&tiny::phi3())));
    // Keys and queries are both longer by the root of 1 + ln 4 / ln 16.
    let attention = json!({ "original_max_position_embeddings": 16, "rope_scaling": {
        "type": "longrope", "short_factor": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        "attention_factor": (1.0 + 4f64.ln() / 16f64.ln()).sqrt(), "long_factor": [] } });
    let said = with(tiny::phi3(), attention.clone());
    let mut unsaid = said.clone();
    unsaid["rope_scaling"].as_object_mut().unwrap().remove("attention_factor");
    let short = |config: &Value| {
        let model = random(config);
        let pass = Pass::one(Span::new(0, 0, &tiny::tokens(12), Want::All));
        model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap()
    };
    assert_eq!(short(&said), short(&unsaid));
    let mut as_long_as_before = said.clone();
    as_long_as_before["rope_scaling"]["attention_factor"] = json!(1.0);
    assert_ne!(short(&said), short(&as_long_as_before));
}

#[test]
fn longrope_turns_with_its_long_factors_if_a_longer_context_is_asked_for() {
    let with_factors = |short: [f64; 6], long: [f64; 6], trained: usize| {
        let scaling = json!({ "type": "longrope", "short_factor": short, "long_factor": long,
            "attention_factor": 1.25 });
        let fields =
            json!({ "original_max_position_embeddings": trained, "rope_scaling": scaling });
        with(tiny::phi3(), fields)
    };
    let (short, long) = ([1.0, 1.0, 1.5, 2.0, 3.0, 4.0], [1.0, 2.0, 4.0, 8.0, 9.0, 9.5]);
    let model = |config: &Value, context: Option<usize>| {
        read(config).random(5, LoadOptions { context, ..LoadOptions::default() }).unwrap()
    };
    let run = |model: &Model, tokens: usize| {
        let pass = Pass::one(Span::new(0, 0, &tiny::tokens(tokens), Want::All));
        model.forward(&pass, &mut NaiveAttention::new(model.isa))
    };
    let both = with_factors(short, long, 16);
    // All of a longer context is turned by the long factors, also where it is short still.
    let expected = model(&with_factors(long, short, 64), None);
    let found = model(&both, Some(64));
    assert_eq!(run(&found, 60).unwrap(), run(&expected, 60).unwrap());
    assert_eq!(run(&found, 9).unwrap(), run(&expected, 9).unwrap());
    // What the model was trained on at first is enough for who asks for no more.
    let before = model(&with_factors(short, short, 64), None);
    for context in [None, Some(16), Some(9)] {
        let found = model(&both, context);
        assert_eq!(run(&found, 9).unwrap(), run(&before, 9).unwrap());
    }
    assert_ne!(run(&before, 9).unwrap(), run(&expected, 9).unwrap());
    // Nor does it reach further than it was stretched to.
    assert!(run(&model(&both, Some(100)), 65).is_err());
}
