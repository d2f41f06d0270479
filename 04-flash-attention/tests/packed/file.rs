//! Packed weights in a file: the same bits as packed afresh, and never taken for what they are not.

use flash_attention::fusion::Fused;
use flash_attention::packed::{Format, PackedFile, PackedFrom, Packer, Rows, Weights};
use flash_attention::threads::Pool;
use naive_decode::{
    Config, Error, Isa, LoadOptions, Model, NaiveAttention, Pass, Result, Span, Want,
    random_tensors,
};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Magic, version, length of the header, checksum.
const PREFIX: usize = 56;

/// Where the checksum begins.
const CHECKSUM: usize = 24;

/// A Llama whose matrices have ragged last panels.
fn config() -> Config {
    let json = br#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "intermediate_size": 40, "vocab_size": 97, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64, "tie_word_embeddings": true}"#;
    Config::from_json("config.json", json).unwrap()
}

fn from(weights: Weights, threads: usize) -> PackedFrom {
    PackedFrom { sources: [7; 32], weights, threads }
}

/// The model with the weights of `seed`, and the packer that packed it.
fn packed(seed: u64, from: &PackedFrom, write_to: Option<&Path>) -> Model {
    let stored = |_: &str| Ok(None::<Rows>);
    let pool = Pool::new(from.threads);
    let packer = Packer::new(from.weights, Isa::best(), &pool, &stored);
    let tensors = random_tensors(seed);
    let fused = Fused::new(&packer, &pool);
    let model = Model::assemble(config(), LoadOptions::default(), &tensors, &fused).unwrap();
    if let Some(path) = write_to {
        packer.write(path, from).unwrap();
    }
    model
}

/// The model as the file has it: no matrix is read from anywhere else.
fn mapped(seed: u64, from: &PackedFrom, path: &Path) -> Result<Model> {
    let file = PackedFile::open(path, from)?;
    let stored = |_: &str| Ok(None::<Rows>);
    let pool = Pool::new(from.threads);
    let packer = Packer::new(from.weights, Isa::best(), &pool, &stored).with_file(&file);
    let random = random_tensors(seed);
    let vectors = |name: &str, shape: &[usize]| match shape {
        [_] => random(name, shape),
        _ => Err(Error::invalid("a matrix", name, "in the file")),
    };
    Model::assemble(config(), LoadOptions::default(), &vectors, &Fused::new(&packer, &pool))
}

fn logits(model: &Model) -> Vec<u32> {
    let pass = Pass::one(Span::new(0, 0, &[5, 96, 41, 0, 17], Want::All));
    let logits = model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap();
    logits.iter().map(|logit| logit.to_bits()).collect()
}

fn folder_with(from: &PackedFrom) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.packed");
    packed(1, from, Some(&path));
    (folder, path)
}

/// What is said of a file that is refused.
fn refusal(path: &Path, from: &PackedFrom) -> String {
    PackedFile::open(path, from).err().expect("it is not what it should be").to_string()
}

#[test]
fn mapped_is_packed_to_the_bit_in_every_format_at_any_number_of_threads() {
    for format in Format::ALL {
        for threads in [1, 2, 3] {
            let from = from(Weights::As(format), threads);
            let (_folder, path) = folder_with(&from);
            let expected = logits(&packed(1, &from, None));
            let found = mapped(1, &from, &path).unwrap();
            assert!(logits(&found) == expected, "{format:?}, {threads} threads");
            assert_eq!(found.weight_bytes(), packed(1, &from, None).weight_bytes());
        }
    }
}

/// A start that is killed while it packs leaves a hidden file as large as the model.
#[test]
fn what_a_killed_start_has_left_is_removed_and_what_another_writes_is_not() {
    let from = from(Weights::As(Format::Q8_0), 1);
    let folder = tempfile::tempdir().unwrap();
    let [left, written, own] =
        [".packing-a1B2c3", ".packing-d4E5f6", "x.packed"].map(|name| folder.path().join(name));
    std::fs::write(&left, "half of it").unwrap();
    let writer = File::create(&written).unwrap();
    writer.lock().unwrap();
    packed(1, &from, Some(&own));
    assert!(!left.exists() && written.exists());
    PackedFile::open(&own, &from).unwrap();
    drop(writer);
    packed(1, &from, Some(&own));
    let names = std::fs::read_dir(folder.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["x.packed"]);
}

#[test]
fn what_was_packed_from_something_else_is_refused() {
    let own = from(Weights::As(Format::Q8_0), 2);
    let (_folder, path) = folder_with(&own);
    for (other, words) in [
        (PackedFrom { sources: [8; 32], ..own.clone() }, "other files"),
        (from(Weights::As(Format::Q4_0), 2), "packed as q8_0, expected q4_0"),
        (from(Weights::AsStored, 2), "packed as q8_0, expected stored"),
        (from(Weights::As(Format::Q8_0), 1), "packed for 2 threads, expected 1"),
    ] {
        let said = refusal(&path, &other);
        assert!(said.contains(words) && said.contains("x.packed"), "{said}");
    }
    PackedFile::open(&path, &own).unwrap();
}

#[test]
fn damage_at_any_byte_before_the_weights_is_found() {
    let from = from(Weights::As(Format::Q8_0), 2);
    let (_folder, path) = folder_with(&from);
    let whole = std::fs::read(&path).unwrap();
    let header = u64::from_ne_bytes(whole[16..24].try_into().unwrap()) as usize;
    assert!(header > 500 && PREFIX + header < whole.len());
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut put = |at: usize, byte: u8| {
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.write_all(&[byte]).unwrap();
    };
    for (at, &byte) in whole.iter().enumerate().take(PREFIX + header) {
        for change in [0x01, 0x80, 0xff] {
            put(at, byte ^ change);
            assert!(PackedFile::open(&path, &from).is_err(), "byte {at}, changed by {change}");
        }
        put(at, byte);
    }
    PackedFile::open(&path, &from).unwrap();
}

#[test]
fn a_file_that_is_cut_short_or_added_to_is_refused() {
    let from = from(Weights::As(Format::Q4_1), 1);
    let (_folder, path) = folder_with(&from);
    let whole = std::fs::metadata(&path).unwrap().len() as usize;
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(whole as u64 + 1).unwrap();
    assert!(refusal(&path, &from).contains("cut short or added to"));
    let header = (0..2_000).chain((2_000..whole).step_by(97));
    for length in header.filter(|&length| length < whole).rev() {
        file.set_len(length as u64).unwrap();
        assert!(refusal(&path, &from).contains("x.packed"), "{length}");
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn what_is_no_file_of_packed_weights_is_refused() {
    let from = from(Weights::AsStored, 1);
    let folder = tempfile::tempdir().unwrap();
    assert!(refusal(folder.path(), &from).contains("is no file"));
    assert!(refusal(&folder.path().join("nothing"), &from).contains("nothing"));
    let path = folder.path().join("x.packed");
    for bytes in [&[0; 4_096][..], &[b'x'; 200], b"PACKEDW\0", &[0xff; 57]] {
        std::fs::write(&path, bytes).unwrap();
        assert!(refusal(&path, &from).contains("x.packed"));
    }
}

/// The file's header changed by `change`, under a checksum that is right.
fn forged(whole: &[u8], change: &dyn Fn(&mut Value)) -> Vec<u8> {
    let length = u64::from_ne_bytes(whole[16..24].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&whole[PREFIX..][..length]).unwrap();
    change(&mut header);
    let json = serde_json::to_vec(&header).unwrap();
    let mut bytes = whole[..16].to_vec();
    bytes.extend((json.len() as u64).to_ne_bytes());
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes[..CHECKSUM]).update(&json);
    bytes.extend(hasher.finalize().as_bytes());
    bytes.extend(&json);
    let end = bytes.len();
    bytes.extend(&whole[end..]);
    bytes
}

#[test]
fn a_header_that_lies_is_refused() {
    let from = from(Weights::As(Format::Q8_0), 2);
    let (_folder, path) = folder_with(&from);
    let whole = std::fs::read(&path).unwrap();
    let first = |header: &Value| header["matrices"][0].clone();
    std::fs::write(&path, forged(&whole, &|_| {})).unwrap();
    PackedFile::open(&path, &from).expect("nothing was changed");
    type Lie<'a> = (&'a str, &'a dyn Fn(&mut Value));
    let lies: [Lie; 11] = [
        ("past the end", &|it| it["matrices"][0]["shares"][1][0] = whole.len().into()),
        ("overflow", &|it| it["matrices"][0]["shares"][1][0] = (usize::MAX - 63).into()),
        ("crooked", &|it| it["matrices"][0]["shares"][0][0] = 65.into()),
        ("longer", &|it| it["matrices"][0]["shares"][0][1] = 65_536.into()),
        ("one share", &|it| it["matrices"][0]["shares"].as_array_mut().unwrap().truncate(1)),
        ("outputs", &|it| it["matrices"][0]["outputs"] = 9_999.into()),
        ("no inputs", &|it| it["matrices"][0]["inputs"] = 0.into()),
        ("huge", &|it| it["matrices"][0]["inputs"] = usize::MAX.into()),
        ("format", &|it| it["matrices"][0]["format"] = "q9".into()),
        ("threads", &|it| it["threads"] = 0.into()),
        ("negative", &|it| it["length"] = (-1).into()),
    ];
    for (what, lie) in lies {
        let bytes = forged(&whole, lie);
        std::fs::write(&path, &bytes).unwrap();
        assert!(PackedFile::open(&path, &from).is_err(), "{what}");
    }
    // A matrix under another name is not used for one of another shape, nor missed: it is read.
    let renamed = forged(&whole, &|it| {
        let other = it["matrices"][1]["name"].clone();
        it["matrices"][0]["name"] = other;
        assert_ne!(first(it)["outputs"], it["matrices"][1]["outputs"]);
    });
    std::fs::write(&path, renamed).unwrap();
    assert!(mapped(1, &from, &path).is_err(), "the file lacks a matrix");
}

#[test]
fn damage_in_the_weights_is_found_by_who_looks() {
    let from = from(Weights::As(Format::Bf16), 2);
    let (_folder, path) = folder_with(&from);
    let mut whole = std::fs::read(&path).unwrap();
    PackedFile::open(&path, &from).unwrap().verify().unwrap();
    let header: Value = {
        let length = u64::from_ne_bytes(whole[16..24].try_into().unwrap()) as usize;
        serde_json::from_slice(&whole[PREFIX..][..length]).unwrap()
    };
    for matrix in header["matrices"].as_array().unwrap() {
        for share in matrix["shares"].as_array().unwrap() {
            let [start, length] = [0, 1].map(|i| share[i].as_u64().unwrap() as usize);
            // A matrix of one panel has nothing for a second thread.
            if length == 0 {
                continue;
            }
            for at in [start, start + length / 2, start + length - 1] {
                whole[at] ^= 4;
                std::fs::write(&path, &whole).unwrap();
                let said = PackedFile::open(&path, &from).unwrap().verify().unwrap_err();
                let said = said.to_string();
                assert!(said.contains(matrix["name"].as_str().unwrap()), "{said}");
                whole[at] ^= 4;
            }
        }
    }
}

#[test]
fn a_new_file_leaves_what_is_mapped_alone() {
    let from = from(Weights::As(Format::F16), 2);
    let (folder, path) = folder_with(&from);
    let older = mapped(1, &from, &path).unwrap();
    packed(2, &from, Some(&path));
    assert!(logits(&older) == logits(&packed(1, &from, None)));
    assert!(logits(&mapped(2, &from, &path).unwrap()) == logits(&packed(2, &from, None)));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_and_leaves_nothing() {
    let wanted = from(Weights::As(Format::Q8_0), 1);
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("x.packed");
    std::fs::create_dir(&taken).unwrap();
    let stored = |_: &str| Ok(None::<Rows>);
    let pool = Pool::new(1);
    let packer = Packer::new(wanted.weights, Isa::best(), &pool, &stored);
    let tensors = random_tensors(1);
    Model::assemble(config(), LoadOptions::default(), &tensors, &packer).unwrap();
    let said = |path: &Path, from: &PackedFrom| packer.write(path, from).unwrap_err().to_string();
    assert!(said(&taken, &wanted).contains("cannot be written"));
    assert!(said(&folder.path().join("no/x"), &wanted).contains("cannot be written"));
    assert!(said(&folder.path().join("x"), &from(wanted.weights, 2)).contains("as packed"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
}
