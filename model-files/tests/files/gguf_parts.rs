//! A model in several GGUF files is the model in one; files that are not one model's are refused in one sentence.

use crate::architectures::checkpoint::{self as shapes, Checkpoint};
use crate::architectures::conversion::as_gguf;
use crate::gguf_model::target_as_gguf;
use crate::hub::{assert_refused, hub, name};
use crate::writer::{GgufFile, Meta, tiny};
use ladder_tests::hub::{FakeHub, Files};
use model_files::{Gguf, ModelFiles, ModelSummary, is_gguf_model, open};
use std::fs;
use std::path::{Path, PathBuf};

const PARTS: usize = 3;
const FIRST: &str = "model-Q4_K_M-00001-of-00003.gguf";
const NAMES: [&str; PARTS] =
    [FIRST, "model-Q4_K_M-00002-of-00003.gguf", "model-Q4_K_M-00003-of-00003.gguf"];

/// Writes the parts under their names, and gives the first's path.
fn write(parts: &[GgufFile], directory: &Path) -> PathBuf {
    for (part, name) in parts.iter().zip(NAMES) {
        fs::write(directory.join(name), part.bytes()).unwrap();
    }
    directory.join(FIRST)
}

#[test]
fn a_model_in_parts_is_the_model() {
    let directory = tempfile::tempdir().unwrap();
    let file = target_as_gguf();
    let path = write(&file.parts(PARTS), directory.path());
    let (whole, parts) = (file.write(directory.path()), Gguf::open(&path).unwrap());
    let whole = Gguf::open(&whole).unwrap();
    assert_eq!(parts.parameters(), whole.parameters());
    let config = ModelFiles::open_gguf(&path).unwrap().config;
    for name in ["model.embed_tokens.weight", "model.norm.weight"]
        .map(str::to_owned)
        .into_iter()
        .chain((0..config.layers).flat_map(|layer| {
            ["self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj", "input_layernorm"]
                .map(|part| format!("model.layers.{layer}.{part}.weight"))
        }))
    {
        let (found, expected) = (parts.raw(&name).unwrap(), whole.raw(&name).unwrap());
        assert_eq!(found.shape, expected.shape);
        assert!(found.bytes == expected.bytes, "{name}");
    }
    let bytes: u64 =
        NAMES.iter().map(|name| directory.path().join(name).metadata().unwrap().len()).sum();
    assert_eq!(ModelSummary::read(&path).unwrap().stored_bytes, bytes);
    assert_eq!(NAMES.map(|name| is_gguf_model(&directory.path().join(name))), [true, false, false]);
}

#[test]
fn experts_in_parts_are_experts_and_what_is_wrong_with_one_is_said_of_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = as_gguf(&Checkpoint::random(shapes::qwen3_moe()), "qwen3moe", false);
    let whole = ModelFiles::open_gguf(&file.write(directory.path())).unwrap();
    let mut parts = file.parts(PARTS);
    let in_parts = ModelFiles::open_gguf(&write(&parts, directory.path())).unwrap();
    let (name, shape) = ("model.layers.1.mlp.experts.3.up_proj.weight", [24, 48]);
    assert_eq!(in_parts.tensor(name, &shape).unwrap(), whole.tensor(name, &shape).unwrap());
    let has = |part: &GgufFile| part.tensors.iter().any(|it| it.name == "blk.1.ffn_up_exps.weight");
    let part = parts.iter().position(has).unwrap();
    assert_ne!(part, 0, "the first is named where nothing is known");
    let bytes = &mut parts[part].tensor("blk.1.ffn_up_exps.weight").bytes;
    let fourth = 3 * 24 * 48 * size_of::<f32>();
    bytes[fourth..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let in_parts = ModelFiles::open_gguf(&write(&parts, directory.path())).unwrap();
    for shape in [[24, 48], [48, 24]] {
        let said = in_parts.tensor(name, &shape).unwrap_err().to_string();
        assert!(said.contains(NAMES[part]), "{said}");
    }
}

#[test]
fn every_part_tells_the_model_from_what_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(&tiny().parts(PARTS), directory.path());
    let origin = || open(path.to_str().unwrap()).unwrap().origin().unwrap().content;
    let before = origin();
    assert_eq!(origin(), before);
    let last = directory.path().join(NAMES[2]);
    let mut bytes = fs::read(&last).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&last, bytes).unwrap();
    assert_ne!(origin(), before);
}

#[test]
fn parts_that_do_not_make_a_model_are_refused() {
    let refused = |change: &dyn Fn(&mut [GgufFile], &Path), opened: &str, words: &[&str]| {
        let directory = tempfile::tempdir().unwrap();
        let mut parts = tiny().parts(PARTS);
        write(&parts, directory.path());
        change(&mut parts, directory.path());
        let said = ModelFiles::open_gguf(&directory.path().join(opened))
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(words.iter().all(|word| said.contains(word)), "`{said}` lacks one of {words:?}");
        assert!(!said.contains('\n'), "{said}");
    };
    let set = |number: usize, key: &'static str, value: u32| {
        move |parts: &mut [GgufFile], directory: &Path| {
            parts[number].set(key, Meta::U32(value));
            write(parts, directory);
        }
    };
    let nothing = |_: &mut [GgufFile], _: &Path| {};
    refused(&nothing, NAMES[1], &[NAMES[1], "is part 2 of 3", FIRST]);
    let gone = |_: &mut [GgufFile], at: &Path| fs::remove_file(at.join(NAMES[2])).unwrap();
    refused(&gone, FIRST, &[NAMES[2]]);
    let called =
        |_: &mut [GgufFile], at: &Path| fs::rename(at.join(FIRST), at.join("a.gguf")).unwrap();
    refused(&called, "a.gguf", &["first of 3 parts", "-00001-of-00003.gguf"]);
    let last =
        |_: &mut [GgufFile], at: &Path| fs::rename(at.join(NAMES[2]), at.join("a.gguf")).unwrap();
    refused(&last, "a.gguf", &["is part 3 of 3", "the first"]);
    refused(&set(2, "split.no", 1), FIRST, &[NAMES[2], "part 2 of 3", "expected part 3 of 3"]);
    refused(&set(1, "split.count", 2), FIRST, &[NAMES[1], "part 2 of 2", "part 2 of 3"]);
    refused(&set(1, "split.count", 0), FIRST, &[NAMES[1], "split.no", "less than split.count, 1"]);
    refused(&set(0, "split.count", 4), FIRST, &[FIRST, "first of 4 parts", "-of-00004.gguf"]);
    refused(&set(0, "split.count", u32::MAX), FIRST, &[FIRST, "first of 4294967295 parts"]);
    refused(&set(0, "split.no", u32::MAX), FIRST, &["split.no", "4294967295", "less than"]);
    refused(&set(0, "split.tensors.count", 9), FIRST, &["split.tensors.count", "9", "11"]);
    let twice = |parts: &mut [GgufFile], at: &Path| {
        let tensor = parts[0].tensors[0].clone();
        parts[2].tensors.push(tensor);
        write(parts, at);
    };
    refused(&twice, FIRST, &[NAMES[2], "token_embd.weight", "a part before it"]);
    let cut = |_: &mut [GgufFile], at: &Path| {
        let bytes = fs::read(at.join(NAMES[1])).unwrap();
        fs::write(at.join(NAMES[1]), &bytes[..bytes.len() - 40]).unwrap();
    };
    refused(&cut, FIRST, &[NAMES[1], "truncated"]);
}

#[test]
fn what_is_wrong_with_a_tensor_is_said_of_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut parts = tiny().parts(PARTS);
    // The second tensor, in f32.
    assert_eq!(parts[1].tensors[0].name, "output_norm.weight");
    parts[1].tensors[0].bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let files = ModelFiles::open_gguf(&write(&parts, directory.path())).unwrap();
    for shape in [32, 31] {
        let said = files.tensor("model.norm.weight", &[shape]).unwrap_err().to_string();
        assert!(said.contains(NAMES[1]), "{said}");
    }
}

#[test]
fn all_parts_come_from_the_hub() {
    let parts: Files = NAMES
        .into_iter()
        .zip(tiny().parts(PARTS))
        .map(|(name, part)| (name, part.bytes()))
        .collect();
    let mut all = parts.clone();
    all.insert("model-Q8_0.gguf", tiny().bytes());
    let server = FakeHub::serve(all, None);
    for what in ["Q4_K_M", FIRST, NAMES[1]] {
        let cache = tempfile::tempdir().unwrap();
        let mut hub = hub(&server.endpoint, cache.path());
        let path = hub.fetch(&name(&format!("owner/name:{what}"))).unwrap();
        assert!(path.ends_with(FIRST), "{path:?}");
        ModelFiles::open_gguf(&path).unwrap();
        hub.offline = true;
        assert_eq!(hub.fetch(&name(&format!("owner/name:{what}"))).unwrap(), path);
        let cached: Vec<String> = hub.cached_models().into_iter().map(|model| model.name).collect();
        assert_eq!(cached, [format!("owner/name:{FIRST}")]);
        // Without one of them it is not there, and only what is missing comes again.
        fs::remove_file(path.with_file_name(NAMES[2])).unwrap();
        assert_eq!(hub.cached_models(), []);
        assert_refused(&hub, &format!("owner/name:{what}"), &["HF_HUB_OFFLINE", "holds no models"]);
        hub.offline = false;
        server.requests.lock().unwrap().clear();
        assert_eq!(hub.fetch(&name(&format!("owner/name:{what}"))).unwrap(), path);
        let asked = server.requests.lock().unwrap();
        assert!(asked.iter().any(|path| path.contains(NAMES[2])), "{asked:?}");
        assert!(!asked.iter().any(|path| path.contains(NAMES[1])), "{asked:?}");
    }
    // What is not whole on the hub is not begun.
    let cache = tempfile::tempdir().unwrap();
    let mut two = parts.clone();
    two.remove(NAMES[2]);
    let half = FakeHub::serve(two, None);
    let words = ["has no model-Q4_K_M-00003-of-00003.gguf"];
    assert_refused(&hub(&half.endpoint, cache.path()), "owner/name:Q4_K_M", &words);
    // A repository that has nothing else needs no file's name.
    let cache = tempfile::tempdir().unwrap();
    let server = FakeHub::serve(parts, None);
    let mut hub = hub(&server.endpoint, cache.path());
    let path = hub.fetch(&name("owner/name")).unwrap();
    assert!(path.ends_with(FIRST), "{path:?}");
    hub.offline = true;
    assert_eq!(hub.fetch(&name("owner/name")).unwrap(), path);
}

#[test]
fn a_file_may_have_any_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sha256-0123456789abcdef");
    fs::write(&path, tiny().bytes()).unwrap();
    let what = path.to_str().unwrap();
    open(what).unwrap();
    ModelSummary::read(&path).unwrap();
    assert!(is_gguf_model(&path));
    fs::write(&path, b"GGU").unwrap();
    let said = open(what).map(drop).unwrap_err().to_string();
    assert!(said.contains("expected a directory, a .gguf or a .safetensors file"), "{said}");
}
