//! From a mapped file into large pages, while the model is at work already.
//!
//! Most systems map a file in pages of 4 KB. What a kernel asks for ahead of time comes late then, or not at all, as the processor
//! has to find out first where each page is; so every token takes longer than it would from pages of 2 MB. To read the file
//! into those before the first token would make that wait. So a thread of its own copies block after block, in the order in
//! which a token meets them, and each is read from its copy as soon as that is there.

use super::super::memory::{Block, Memory};
use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;
use std::sync::Weak;
use std::thread::JoinHandle;

/// Whether the system gives large pages to whoever asks, and has memory for this many bytes twice over. What it only maps, it can
/// have back at any time; what is copied, it cannot.
pub(super) fn is_worth_it(bytes: usize) -> bool {
    let gives = read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let gives = gives.is_ok_and(|ways| !ways.contains("[never]"));
    let there = read_to_string("/proc/meminfo").ok().and_then(|all| available(&all));
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = left_to_groups(&groups, |file| read_to_string(file).ok());
    gives && there.into_iter().chain(own).min().is_some_and(|free| free / 2 >= bytes)
}

/// Bytes that programs could still have, as `/proc/meminfo` has them.
fn available(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<usize>().ok()?.checked_mul(1024)
}

/// Bytes that the limits of control groups leave to a process: a container, or a service, may have less than the machine. `groups`
/// is what `/proc/self/cgroup` says; limits of the groups around its own hold as well. What is in use counts files that the
/// system could let go of. Nothing if there is no limit.
fn left_to_groups(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let left = |line: &str| {
        // `number:controllers:path`, where the second version has all controllers in one.
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (root, limit, usage) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            names if names.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => return None,
        };
        let number = |group: &str, file: &str| -> Option<usize> {
            read(&format!("{root}{group}/{file}"))?.trim().parse().ok()
        };
        let mut rooms = Vec::new();
        let mut group = path.trim_end_matches('/');
        loop {
            let most_and_used = number(group, limit).zip(number(group, usage));
            rooms.extend(most_and_used.map(|(most, used)| most.saturating_sub(used)));
            match group.rsplit_once('/') {
                Some((around, _)) => group = around,
                None => break,
            }
        }
        rooms.into_iter().min()
    };
    groups.lines().filter_map(left).min()
}

/// Begins to copy matrices, given as each thread's block of them, from the file that is mapped. Matrices that nobody has any more
/// are left out.
///
/// # Errors
/// If there can be no thread more. That, or a block that cannot be read, is no harm: what is not copied is read where it is mapped.
pub(super) fn begin(
    file: File,
    threads: usize,
    matrices: Vec<Weak<[Block]>>,
) -> std::io::Result<JoinHandle<()>> {
    let copy = move || {
        let memory = Memory::new(threads);
        for blocks in matrices.iter().filter_map(Weak::upgrade) {
            for (thread, block) in blocks.iter().enumerate() {
                // Read, and not copied from the map: a file that was cut short is then an error, and no fault.
                let read = |bytes: &mut [u8], at| file.read_exact_at(bytes, at);
                if block.copy((&memory, thread), read).is_none() {
                    return;
                }
            }
        }
    };
    std::thread::Builder::new().name("copy".into()).spawn(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::Mmap;
    use std::sync::Arc;

    const LENGTH: usize = 10_000;

    /// A file of four blocks, two for each of two threads, and the two matrices where it is mapped.
    fn mapped() -> (File, Vec<u8>, [Arc<[Block]>; 2]) {
        let bytes: Vec<u8> = (0..4 * LENGTH).map(|i| (i % 251) as u8).collect();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        // SAFETY: no test changes what is mapped.
        let map = Arc::new(unsafe { Mmap::map(&file) }.unwrap());
        let matrix = |m| [m, m + 2].map(|b| Block::mapped(&map, b * LENGTH, LENGTH)).into();
        (file, bytes, [0, 1].map(matrix))
    }

    fn copied(file: File, matrices: &[Arc<[Block]>]) {
        begin(file, 2, matrices.iter().map(Arc::downgrade).collect()).unwrap().join().unwrap();
    }

    fn places(matrices: &[Arc<[Block]>]) -> Vec<*const u8> {
        matrices.iter().flat_map(|blocks| blocks.iter().map(|it| it.bytes().as_ptr())).collect()
    }

    #[test]
    fn blocks_are_read_from_their_copies_which_follow_one_another() {
        let (file, bytes, matrices) = mapped();
        let before = places(&matrices);
        copied(file, &matrices);
        let after = places(&matrices);
        assert!(before.iter().all(|place| !after.contains(place)), "they are elsewhere");
        for (m, blocks) in matrices.iter().enumerate() {
            for (thread, block) in blocks.iter().enumerate() {
                assert!(block.bytes() == &bytes[(m + 2 * thread) * LENGTH..][..LENGTH]);
            }
        }
        // Each thread's of the second matrix begins at the cache line after its block of the first.
        let apart = LENGTH.next_multiple_of(64);
        assert_eq!(after[2..], [0, 1].map(|thread| after[thread].wrapping_add(apart)));
    }

    #[test]
    fn nothing_is_copied_that_there_is_no_memory_for() {
        assert_eq!(
            available("MemFree: 1 kB\nMemAvailable:    2048 kB\nCached: 3 kB"),
            Some(2 << 20)
        );
        assert_eq!(available("MemFree: 1 kB"), None);
        assert!(!is_worth_it(1 << 60));
    }

    #[test]
    fn a_container_s_limit_holds_and_those_around_it() {
        let files = [
            ("/sys/fs/cgroup/system.slice/memory.max", "1000\n"),
            ("/sys/fs/cgroup/system.slice/memory.current", "400\n"),
            ("/sys/fs/cgroup/system.slice/ladder.service/memory.max", "max\n"),
            ("/sys/fs/cgroup/system.slice/ladder.service/memory.current", "300\n"),
            ("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "500"),
            ("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "450"),
            ("/sys/fs/cgroup/memory.max", "90"),
            ("/sys/fs/cgroup/memory.current", "100"),
        ];
        let read = |file: &str| {
            let found = files.iter().find(|(name, _)| *name == file);
            found.map(|(_, text)| (*text).to_owned())
        };
        let beside =
            |file: &str| read(file).filter(|_| !file.starts_with("/sys/fs/cgroup/memory."));
        let left = |groups| left_to_groups(groups, beside);
        assert_eq!(left("0::/system.slice/ladder.service\n"), Some(600));
        assert_eq!(left("3:cpu,memory:/docker/abc\n2:cpuset:/docker/abc\n"), Some(50));
        assert_eq!(left("3:memory:/docker/abc\n0::/system.slice"), Some(50));
        assert_eq!(left("0::/user.slice\n"), None);
        assert_eq!(left(""), None);
        // Of a container of its own the root is what it may have; what is over it is nothing.
        assert_eq!(left_to_groups("0::/", read), Some(0));
        assert_eq!(left_to_groups("0::/system.slice/ladder.service", read), Some(0));
    }

    #[test]
    fn what_cannot_be_read_or_is_not_needed_any_more_stays_where_it_is() {
        let (whole, bytes, matrices) = mapped();
        let before = places(&matrices);
        let short = tempfile::tempfile().unwrap();
        short.write_all_at(&bytes[..LENGTH + 5], 0).unwrap();
        copied(short, &matrices);
        assert_eq!(places(&matrices)[1..], before[1..], "the file ends before");
        assert!(matrices[0][1].bytes() == &bytes[2 * LENGTH..][..LENGTH]);
        let [first, second] = matrices;
        let gone = Arc::downgrade(&first);
        drop(first);
        begin(whole, 2, vec![gone, Arc::downgrade(&second)]).unwrap().join().unwrap();
        assert!(second[0].bytes().as_ptr() != before[2], "the other one is copied");
        assert!(second[1].bytes() == &bytes[3 * LENGTH..][..LENGTH]);
    }
}
