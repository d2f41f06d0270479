//! One moment as text.

use super::recording::{Moment, Recording};
use ptx_interpreter::{SharedAccess, Wavefront};
use std::fmt::Write;

/// Registers that are shown of an instruction that writes many, as a product of a warpgroup does.
const MOST_REGISTERS: usize = 4;
/// Wavefronts that are drawn of one request.
const MOST_WAVEFRONTS: usize = 8;

/// What is run.
pub(super) fn heading(recording: &Recording) -> String {
    let Recording { small, launch, block, moments, .. } = recording;
    format!(
        "{}: {}\ngrid {:?} of {} threads, {} bytes of dynamic shared memory; block {block:?} is shown, {} instructions of its warps\n",
        small.name,
        small.about,
        launch.grid,
        launch.threads,
        launch.shared_bytes,
        moments.len()
    )
}

/// The moment `at`: where all warps are, and what one of them has just done.
pub(super) fn moment(recording: &Recording, at: usize) -> String {
    let moment = &recording.moments[at];
    let mut text = format!("step {} of {}\n", at + 1, recording.moments.len());
    warps(recording, at, &mut text);
    let _ =
        writeln!(text, "warp {}, line {}: {}", moment.warp, moment.line, recording.text(moment));
    let _ = writeln!(text, "  lanes  {}  {} of 32", lanes(moment), moment.executing.count_ones());
    let written: Vec<_> = recording.registers(moment).collect();
    for (name, values) in written.iter().take(MOST_REGISTERS) {
        register(name, values, moment.executing, &mut text);
    }
    if let Some(more) = written.len().checked_sub(MOST_REGISTERS).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {more} registers more");
    }
    for (name, bits) in recording.predicates(moment) {
        let _ = writeln!(
            text,
            "  {name:<6} {}  by lane, from lane 0",
            by_lane(|lane| if bits >> lane & 1 == 1 { '1' } else { '0' })
        );
    }
    moment.shared.iter().for_each(|access| shared(access, &mut text));
    under_way(moment, &mut text);
    text
}

/// What the whole launch came to.
pub(super) fn counts(recording: &Recording) -> String {
    let lines = recording.counts.named().into_iter().filter(|(_, count)| *count > 0);
    let lines: String = lines.map(|(name, count)| format!("  {count:>9} {name}\n")).collect();
    format!(
        "all blocks of the launch:\n{lines}  {:>9} bank conflicts\n",
        recording.counts.bank_conflicts()
    )
}

fn by_lane(of: impl Fn(usize) -> char) -> String {
    (0..32).map(of).collect()
}

/// A letter for each lane: `#` executes, `-` is here and its guard says no, `.` is elsewhere or has ended.
fn lanes(moment: &Moment) -> String {
    by_lane(|lane| match (moment.executing >> lane & 1, moment.active >> lane & 1) {
        (1, _) => '#',
        (_, 1) => '-',
        _ => '.',
    })
}

/// A line for each warp: where it goes on, or what it waits for.
fn warps(recording: &Recording, at: usize, text: &mut String) {
    let now = &recording.moments[at];
    for warp in 0..recording.of_warp.len() {
        let mark = if now.warp as usize == warp { '>' } else { ' ' };
        let barrier = now.pending.barriers.iter().find(|b| b.waiting.contains(&(warp as u32)));
        let place = match (barrier, recording.next_of(warp, at)) {
            (Some(barrier), _) => format!(
                "waits at barrier {}, where {} of {} threads are",
                barrier.id, barrier.arrived, barrier.expected
            ),
            (None, None) => "has ended".into(),
            (None, Some(next)) => {
                format!("at {:>5}  {:08x}  {}", next.line, next.active, recording.text(next))
            }
        };
        let _ = writeln!(text, "{mark} warp {warp:>2}  {place}");
    }
}

/// Eight lanes in a line.
fn register(name: &str, values: &[u64; 32], executing: u32, text: &mut String) {
    let value = |lane: usize| match executing >> lane & 1 {
        0 => "·".into(),
        _ if name.starts_with("%f") && !name.starts_with("%fd") => {
            format!("{:.5}", f32::from_bits(values[lane] as u32))
        }
        _ => format!("{:x}", values[lane]),
    };
    let first = executing.trailing_zeros() as usize & 31;
    let is_same = (0..32).all(|lane| executing >> lane & 1 == 0 || values[lane] == values[first]);
    if is_same {
        let _ = writeln!(text, "  {name:<6} {} in every lane", value(first));
        return;
    }
    for row in 0..4 {
        let name = if row == 0 { name } else { "" };
        let values: String =
            (8 * row..8 * row + 8).map(|lane| format!("{:>12}", value(lane))).collect();
        let _ = writeln!(text, "  {name:<6} {:>2}:{values}", 8 * row);
    }
}

/// The request with the most wavefronts, as a grid of 32 banks.
fn shared(access: &SharedAccess, text: &mut String) {
    let SharedAccess { writes, addresses, bytes, requests, wavefronts } = access;
    let word =
        |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let does = if *writes { "write" } else { "read" };
    let conflicts = match wavefronts - requests {
        0 => "no bank conflict".into(),
        conflicts => word(conflicts, "bank conflict"),
    };
    let _ = writeln!(
        text,
        "  shared memory: {does} {bytes} bytes by each of {} lanes, {}, {}: {conflicts}",
        addresses.len(),
        word(*requests, "request"),
        word(*wavefronts, "wavefront")
    );
    let by_bank = access.by_bank();
    let fullest = by_bank.iter().enumerate().max_by_key(|(at, rows)| (rows.len(), usize::MAX - at));
    let Some((at, rows)) = fullest else { return };
    let _ = writeln!(
        text,
        "    request {} of {requests}; in each bank the lane that is served",
        at + 1
    );
    let _ = writeln!(
        text,
        "    bank {}",
        (0..32)
            .map(|bank| if bank % 4 == 0 { format!("{bank:<3}") } else { "   ".into() })
            .collect::<String>()
    );
    for (number, row) in rows.iter().enumerate().take(MOST_WAVEFRONTS) {
        let _ = writeln!(text, "    {:>4} {}", number + 1, banks(row));
    }
    if rows.len() > MOST_WAVEFRONTS {
        let _ = writeln!(text, "    and {} wavefronts more", rows.len() - MOST_WAVEFRONTS);
    }
}

fn banks(row: &Wavefront) -> String {
    row.map(|lane| lane.map_or(".  ".into(), |lane| format!("{lane:<3}"))).concat()
}

/// Barriers, copies and products that are not finished.
fn under_way(moment: &Moment, text: &mut String) {
    let pending = &moment.pending;
    if !pending.copies.is_empty() {
        let (open, groups) =
            pending.copies.split_last().map_or((0, &[][..]), |(open, groups)| (*open, groups));
        let groups: Vec<String> = groups.iter().map(u64::to_string).collect();
        let _ = writeln!(
            text,
            "  cp.async of this warp: groups of [{}] bytes under way, {open} bytes in no group yet",
            groups.join(", ")
        );
    }
    if pending.bulk_bytes > 0 {
        let _ = writeln!(text, "  TMA copies of the block: {} bytes under way", pending.bulk_bytes);
    }
    if pending.products > 0 {
        let _ = writeln!(text, "  wgmma of this warp: {} products under way", pending.products);
    }
    for mbarrier in &pending.mbarriers {
        let _ = writeln!(
            text,
            "  mbarrier {:#07x}: phase {}, waits for {} arrivals and {} bytes",
            mbarrier.address, mbarrier.phase, mbarrier.arrivals, mbarrier.bytes
        );
    }
}
