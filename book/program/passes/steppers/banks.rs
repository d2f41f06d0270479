//! Eight lanes of a warp at a tile in shared memory: which banks they meet in, and how often they have to take turns.

use serde::Deserialize;

use super::Drawn;
use crate::plot::COLOURS;

/// Groups of four banks of 4 bytes: what sixteen bytes need.
const GROUPS: usize = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trace {
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frame {
    event: String,
    /// For each line and each group of banks, which chunk of its row lies there.
    chunks: Vec<Vec<u32>>,
    /// Lane, line, group of banks.
    access: Vec<[usize; 3]>,
    /// For each wavefront and each group of banks, the lane that is served.
    wavefronts: Vec<Vec<Option<usize>>>,
}

impl Trace {
    pub(super) fn draw(&self) -> Result<Vec<Drawn>, String> {
        self.frames.iter().map(Frame::draw).collect()
    }
}

impl Frame {
    fn draw(&self) -> Result<Drawn, String> {
        let wide = self.chunks.iter().map(Vec::len).chain(self.wavefronts.iter().map(Vec::len));
        if wide.clone().any(|groups| groups != GROUPS) {
            return Err(format!("a line or a wavefront is not {GROUPS} groups of banks wide"));
        }
        if let Some([lane, line, group]) = self
            .access
            .iter()
            .find(|[_, line, group]| *line >= self.chunks.len() || *group >= GROUPS)
        {
            return Err(format!("lane {lane} is at line {line}, group {group}, which is none"));
        }
        let mut html = String::from("<div class=\"banks\"><p><span>banks</span>");
        for group in 0..GROUPS {
            html += &format!("<b>{}<span>–{}</span></b>", 4 * group, 4 * group + 3);
        }
        html += "</p>";
        for (line, chunks) in self.chunks.iter().enumerate() {
            html += &format!("<p><span>key {line}</span>");
            for (group, chunk) in chunks.iter().enumerate() {
                let lane = self.access.iter().find(|[_, at, of]| (*at, *of) == (line, group));
                html += &match lane {
                    Some([lane, ..]) => cell(*lane, &format!("{chunk}")),
                    None => format!("<i>{chunk}</i>"),
                };
            }
            html += "</p>";
        }
        html += "</div><div class=\"banks served\">";
        for (number, lanes) in self.wavefronts.iter().enumerate() {
            html += &format!("<p><span>wavefront {}</span>", number + 1);
            for lane in lanes {
                // Narrow screens have room for the number alone.
                let named = |lane| cell(lane, &format!("<span>lane </span>{lane}"));
                html += &lane.map_or("<i></i>".into(), named);
            }
            html += "</p>";
        }
        Ok(Drawn { event: self.event.clone(), html: html + "</div>" })
    }
}

fn cell(lane: usize, text: &str) -> String {
    format!(
        "<i class=\"is-taken\" style=\"--line: var(--series-{})\" title=\"lane {lane}\">{text}</i>",
        lane % COLOURS
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(access: [usize; 3], served: usize) -> Frame {
        let mut wavefront = vec![None; served];
        wavefront[0] = Some(3);
        Frame {
            event: "e".into(),
            chunks: vec![(0..8).collect(); 2],
            access: vec![access],
            wavefronts: vec![wavefront],
        }
    }

    #[test]
    fn a_lane_is_marked_where_it_reads_and_where_it_is_served() {
        let html = frame([3, 1, 5], 8).draw().unwrap().html;
        assert!(html.contains("title=\"lane 3\">5</i>"), "{html}");
        assert!(html.contains("title=\"lane 3\"><span>lane </span>3</i>"), "{html}");
        assert_eq!(html.matches("is-taken").count(), 2);
    }

    #[test]
    fn places_that_are_none_are_refused() {
        assert!(frame([3, 2, 5], 8).draw().err().unwrap().contains("line 2"));
        assert!(frame([3, 1, 8], 8).draw().err().unwrap().contains("group 8"));
        assert!(frame([3, 1, 5], 7).draw().err().unwrap().contains("8 groups"));
    }
}
