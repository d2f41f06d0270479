//! The committed PTX is what the committed sources compile to, as far as hashes can tell. That the compiler gives these
//! bytes, `compile.py --check` says.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    compiler: String,
    flags: Vec<String>,
    flags_sha256: String,
    headers: Vec<Header>,
    kernels: Vec<Kernel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    path: String,
    sha256: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kernel {
    source: String,
    architecture: String,
    source_sha256: String,
    ptx: String,
    ptx_sha256: String,
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn manifest() -> Manifest {
    serde_json::from_slice(&std::fs::read(here().join("manifest.json")).unwrap()).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_hash_is_that_of_its_file() {
    let manifest = manifest();
    assert_eq!(sha256(manifest.flags.join("\n").as_bytes()), manifest.flags_sha256, "flags");
    let headers = manifest.headers.iter().map(|header| (&header.path, &header.sha256));
    let sources = manifest.kernels.iter().map(|kernel| (&kernel.source, &kernel.source_sha256));
    let modules = manifest.kernels.iter().map(|kernel| (&kernel.ptx, &kernel.ptx_sha256));
    for (path, expected) in headers.chain(sources).chain(modules) {
        let bytes = std::fs::read(here().join(path)).unwrap();
        assert_eq!(&sha256(&bytes), expected, "{path} changed: run compile.py");
    }
}

#[test]
fn every_file_is_listed() {
    let manifest = manifest();
    let headers = manifest.headers.into_iter().map(|header| header.path);
    let kernels = manifest.kernels.into_iter().flat_map(|kernel| [kernel.source, kernel.ptx]);
    let listed: BTreeSet<String> = headers.chain(kernels).collect();
    let found: BTreeSet<String> = ["cuda", "ptx"]
        .into_iter()
        .flat_map(|folder| {
            let files = std::fs::read_dir(here().join(folder)).unwrap();
            files.map(move |file| format!("{folder}/{}", file.unwrap().file_name().display()))
        })
        .collect();
    assert_eq!(listed, found);
}

#[test]
fn the_compiler_is_the_pinned_one() {
    let pinned = std::fs::read_to_string(here().join("requirements.txt")).unwrap();
    assert_eq!(manifest().compiler, pinned.trim());
}

#[test]
fn every_module_is_for_its_architecture() {
    for kernel in manifest().kernels {
        let ptx = std::fs::read_to_string(here().join(&kernel.ptx)).unwrap();
        let target = format!(".target {}", kernel.architecture.replace("compute_", "sm_"));
        assert!(ptx.contains(&target), "{} is not for {}", kernel.ptx, kernel.architecture);
        // PTX of version 8.4 is what drivers from r550 on take.
        assert!(ptx.contains(".version 8.4"), "{}", kernel.ptx);
    }
}
