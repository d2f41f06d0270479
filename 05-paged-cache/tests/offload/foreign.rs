//! Files that are not ours are refused with a reason, and left as they are.

use super::{HEADER, content, get, key, open, options};
use paged_cache::offload::{FileOptions, FileTier, Tier};
use std::path::Path;

/// The error's words after the file's name; the file must be as it was.
fn refused(path: &Path, options: &FileOptions) -> String {
    let before = std::fs::read(path).unwrap();
    let said = FileTier::open(path, options).unwrap_err().to_string();
    assert_eq!(std::fs::read(path).unwrap(), before, "a refused file was changed");
    let (file, problem) = said.split_once(": ").unwrap();
    assert_eq!(Path::new(file), path);
    let advice = "; it is left as it is; name another file, or delete this one";
    problem.strip_suffix(advice).unwrap_or_else(|| panic!("no advice in: {said}")).to_string()
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    for (bytes, begins) in [
        (&b"Dear diary, I have been keeping this for years."[..], "Dear dia"),
        (b"x", "x"),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0", "\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let expected = format!(
            "begins with \"{begins}\" and is no file of blocks, which begins with \"KVBLOCKS\""
        );
        assert_eq!(refused(&path, &options(8, 2)), expected);
    }
}

#[test]
fn blocks_of_another_model_size_or_version_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let ours = options(8, 2);
    open(&path, &ours).put(key(1), b"12345678").unwrap();

    let other_model = FileOptions { fingerprint: [9; 32], ..ours.clone() };
    let expected = format!(
        "has blocks of another model or layout: fingerprint {}, expected {}",
        "07".repeat(32),
        "09".repeat(32)
    );
    assert_eq!(refused(&path, &other_model), expected);
    assert_eq!(refused(&path, &options(9, 2)), "has blocks of 8 bytes, expected 9");

    let whole = std::fs::read(&path).unwrap();
    let mut later = whole.clone();
    later[8] = 2;
    std::fs::write(&path, &later).unwrap();
    assert_eq!(refused(&path, &ours), "has format version 2, expected 1");
    std::fs::write(&path, b"KVBLOCKS?").unwrap();
    let expected = "ends after 9 bytes, in a header that is not of these blocks";
    assert_eq!(refused(&path, &ours), expected);
    // Half a header that another model's process did not finish is not ours to finish.
    for length in 1..HEADER {
        std::fs::write(&path, &whole[..length]).unwrap();
        if length <= 24 {
            // Nothing in it says yet that it is another's.
            assert!(FileTier::open(&path, &other_model).unwrap().is_empty());
        } else {
            let expected =
                format!("ends after {length} bytes, in a header that is not of these blocks");
            assert_eq!(refused(&path, &other_model), expected);
        }
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(get(&mut open(&path, &ours), key(1)).unwrap(), b"12345678");
}

#[test]
fn a_cache_that_has_the_name_to_itself_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let ours = options(8, 2);
    let theirs = FileOptions { fingerprint: [9; 32], ..ours.clone() };
    open(&path, &theirs).put(key(1), b"12345678").unwrap();
    let (mut tier, problem) = FileTier::open_or_empty(&path, &ours).unwrap();
    let said = problem.unwrap().to_string();
    assert!(said.contains("blocks: has blocks of another model or layout"), "{said}");
    assert!(tier.is_empty() && get(&mut tier, key(1)).is_none());
    tier.put(key(2), b"abcdefgh").unwrap();
    let said = FileTier::open_or_empty(&path, &ours).unwrap_err().to_string();
    assert!(said.contains("is in use"), "{said}");
    drop(tier);
    let (mut tier, problem) = FileTier::open_or_empty(&path, &ours).unwrap();
    assert!(problem.is_none());
    assert_eq!(get(&mut tier, key(2)).unwrap(), b"abcdefgh");
    assert_eq!(get(&mut open(&folder.path().join("new"), &ours), key(2)), None);
}

#[cfg(unix)]
#[test]
fn nobody_else_may_read_what_was_said() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    open(&path, &options(8, 2));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o77, 0);
}

#[test]
fn a_file_has_one_owner_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let mut first = open(&path, &options(8, 2));
    first.put(key(1), b"12345678").unwrap();
    let said = FileTier::open(&path, &options(8, 2)).unwrap_err().to_string();
    let problem = "is in use; end the process that has it, or name another file";
    assert_eq!(said, format!("{}: {problem}", path.display()));
    assert_eq!(get(&mut first, key(1)).unwrap(), b"12345678");
    drop(first);
    assert_eq!(open(&path, &options(8, 2)).len(), 1);
}

#[test]
fn options_that_cannot_be_worked_with_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let said = |options: FileOptions| FileTier::open(&path, &options).unwrap_err().to_string();
    assert_eq!(said(options(0, 3)), "bytes of a block is 0, expected at least 1");
    let short = FileOptions { budget: 175, ..options(8, 1) };
    let expected = "at least 176 bytes, the header and one block";
    assert_eq!(said(short), format!("budget of the file is 175, expected {expected}"));
    assert!(said(FileOptions { block_bytes: usize::MAX, ..options(8, 1) }).contains("budget"));
    assert!(!path.exists(), "refused options leave no file behind");

    let nowhere = folder.path().join("no/such/folder/blocks");
    let said = FileTier::open(&nowhere, &options(8, 1)).unwrap_err().to_string();
    assert!(said.starts_with(&format!("cannot read {}: ", nowhere.display())), "{said}");
    FileTier::open(folder.path(), &options(8, 1)).unwrap_err();
    // As much room as there is: nothing is set aside before it is needed.
    let mut tier = open(&path, &FileOptions { budget: u64::MAX, ..options(8, 1) });
    tier.put(key(1), &content(1, 8)).unwrap();
    assert_eq!(get(&mut tier, key(1)).unwrap(), content(1, 8));
}
