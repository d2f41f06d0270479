//! Going through a recording by hand: a line of input, and the moment that it leads to.

use super::draw;
use super::recording::{Moment, Recording};
use anyhow::Result;
use std::io::{BufRead, Write};

const HELP: &str = "\
Enter, N   the next instruction, or N further     back, back N   the same backwards
b          to the next barrier or wait            c              to the next bank conflict
m          to the next access to shared memory    w N, w all     follow warp N alone, or all
end        to the last instruction                q              quit";

/// Asks until the input ends or says `q`.
///
/// # Errors
/// If input or output cannot be used.
pub(super) fn walk(
    recording: &Recording,
    input: &mut dyn BufRead,
    output: &mut dyn Write,
) -> Result<()> {
    writeln!(output, "{}\n{HELP}\n", draw::heading(recording))?;
    let (mut at, mut only) = (0, None);
    write!(output, "{}", draw::moment(recording, at))?;
    loop {
        write!(output, "> ")?;
        output.flush()?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let found = match words[..] {
            ["q" | "quit"] => return Ok(()),
            ["w", "all"] => {
                only = None;
                Some(at)
            }
            ["w", warp] => match warp.parse::<usize>() {
                Ok(warp) if warp < recording.of_warp.len() => {
                    only = Some(warp as u32);
                    Some(at)
                }
                _ => {
                    writeln!(
                        output,
                        "`w` wants a warp from 0 to {}, or `all`",
                        recording.of_warp.len() - 1
                    )?;
                    continue;
                }
            },
            ["end"] => Some(recording.moments.len() - 1),
            ["b"] => seek(recording, only, at, |moment| is_wait(recording.text(moment))),
            ["c"] => seek(recording, only, at, has_conflict),
            ["m"] => seek(recording, only, at, |moment| !moment.shared.is_empty()),
            ["back"] => Some(go(recording, only, at, -1)),
            ["back", count] if count.parse::<u32>().is_ok() => {
                Some(go(recording, only, at, -count.parse::<i64>().unwrap_or(1)))
            }
            [] => Some(go(recording, only, at, 1)),
            [count] if count.parse::<u32>().is_ok() => {
                Some(go(recording, only, at, count.parse::<i64>().unwrap_or(1)))
            }
            _ => {
                writeln!(output, "{HELP}")?;
                continue;
            }
        };
        match found {
            Some(found) => {
                at = found;
                write!(output, "{}", draw::moment(recording, at))?;
                if at + 1 == recording.moments.len() {
                    write!(output, "That was the last one. {}", draw::counts(recording))?;
                }
            }
            None => writeln!(output, "there is none after this")?,
        }
    }
}

/// Whether somebody may be looked at.
fn is_followed(moment: &Moment, only: Option<u32>) -> bool {
    only.is_none_or(|warp| moment.warp == warp)
}

/// `by` moments on, or back; as far as there are some.
fn go(recording: &Recording, only: Option<u32>, at: usize, by: i64) -> usize {
    let followed = |at: &usize| is_followed(&recording.moments[*at], only);
    let steps = by.unsigned_abs() as usize;
    let found = if by < 0 {
        (0..at).rev().filter(followed).take(steps).last()
    } else {
        (at + 1..recording.moments.len()).filter(followed).take(steps).last()
    };
    found.unwrap_or(at)
}

fn seek(
    recording: &Recording,
    only: Option<u32>,
    at: usize,
    wanted: impl Fn(&Moment) -> bool,
) -> Option<usize> {
    (at + 1..recording.moments.len()).find(|&next| {
        is_followed(&recording.moments[next], only) && wanted(&recording.moments[next])
    })
}

/// Instructions at which a warp may have to wait for others, or for its copies and products.
fn is_wait(text: &str) -> bool {
    let opcode = text.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or("");
    ["bar.", "barrier.", "mbarrier.", "cp.async.wait", "wgmma.wait"]
        .iter()
        .any(|name| opcode.starts_with(name))
}

fn has_conflict(moment: &Moment) -> bool {
    moment.shared.iter().any(|access| access.wavefronts > access.requests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_kernels::small::ALL;

    fn said(kernel: &str, input: &str) -> String {
        let small = ALL.iter().find(|small| small.name == kernel).unwrap();
        let mut output = Vec::new();
        walk(&Recording::of(small).unwrap(), &mut input.as_bytes(), &mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    /// The last moment that was shown.
    fn last(said: &str) -> &str {
        &said[said.rfind("step ").unwrap()..]
    }

    #[test]
    fn one_goes_on_back_and_to_the_end() {
        assert!(last(&said("swiglu", "\n")).starts_with("step 2 of"));
        assert!(last(&said("swiglu", "5\nback 2\nback\n")).starts_with("step 3 of"));
        assert!(last(&said("swiglu", "back 9\n")).starts_with("step 1 of"));
        let end = said("swiglu", "end\n");
        assert!(
            end.contains("That was the last one") && end.contains("warp instructions"),
            "{end}"
        );
        assert!(last(&end).contains("warp  0  has ended"), "{end}");
    }

    #[test]
    fn barriers_and_conflicts_are_found() {
        let barrier = said("attention_02_tiled", "b\n");
        assert!(last(&barrier).contains("bar.sync"), "{barrier}");
        assert!(
            last(&barrier).contains("warp  0  waits at barrier 0, where 32 of 128 threads are"),
            "{barrier}"
        );
        let conflict = said("attention_02_tiled", "c\n");
        assert!(last(&conflict).contains("28 bank conflicts"), "{conflict}");
        // Eight lanes in the same four banks, one after another.
        let rows: Vec<&str> =
            last(&conflict).lines().filter(|line| line.starts_with("       ")).collect();
        assert!(
            rows.iter().any(|row| row.trim_start().starts_with("8 7  7  7  7  .")),
            "{conflict}"
        );
        assert!(said("attention_03_swizzled", "c\n").contains("there is none"));
        assert!(last(&said("attention_03_swizzled", "m\n")).contains("no bank conflict"));
    }

    #[test]
    fn one_warp_can_be_followed_alone() {
        let followed = said("attention_02_tiled", "w 3\n\n\n");
        assert!(last(&followed).contains("> warp  3"), "{followed}");
        assert!(said("attention_02_tiled", "w 4\n").contains("from 0 to 3, or `all`"));
        assert!(said("swiglu", "hm\n").matches("quit").count() == 2);
    }

    #[test]
    fn what_is_under_way_is_shown() {
        let copies = said("attention_04_pipelined", "b\n");
        assert!(last(&copies).contains("cp.async.wait_group"), "{copies}");
        let begun = said("attention_04_pipelined", "b\nback\n");
        assert!(begun.contains("bytes under way"), "{begun}");
        let hopper = said("attention_06_hopper_64", "b\nb\nb\nb\nb\nb\nb\nb\nb\nb\nb\nb\nb\n");
        assert!(hopper.contains("mbarrier 0x") && hopper.contains("arrivals"), "{hopper}");
    }
}
