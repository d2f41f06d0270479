//! What loading costs in memory.

use embedded_models::TARGET;
use ladder_tests::watched::most_held_while;
use model_files::ModelFiles;
use naive_decode::LoadOptions;

#[test]
fn loading_holds_little_more_than_the_model() {
    let directory = tempfile::tempdir().unwrap();
    let path = crate::gguf_model::target_as_gguf().write(directory.path());
    // From bf16 in the program, and from a file whose queries and keys change places.
    for files in [ModelFiles::embedded(&TARGET).unwrap(), ModelFiles::open_gguf(&path).unwrap()] {
        let (model, most) = most_held_while(|| files.load(LoadOptions::default()).unwrap());
        // The embedding is the head.
        let packed = model.weight_bytes();
        let ratio = most as f64 / packed as f64;
        assert!((1.0..1.3).contains(&ratio), "{most} bytes held for {packed}: {ratio}");
    }
}
