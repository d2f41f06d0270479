//! What goes on beside what in a kernel: a row for each thing that can be busy, or full, and a column for each round.

use serde::Deserialize;

use super::Drawn;
use crate::html::escape;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trace {
    ways: Vec<Way>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Way {
    name: String,
    rounds: usize,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    cells: Vec<Cell>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    round: usize,
    kind: Kind,
    text: String,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Copy,
    There,
    First,
    Second,
}

impl Trace {
    /// A frame for each kernel, all to one scale.
    pub(super) fn draw(&self) -> Result<Vec<Drawn>, String> {
        let longest = self.ways.iter().map(|way| way.rounds).max().unwrap_or(0);
        self.ways.iter().map(|way| way.draw(longest)).collect()
    }
}

impl Way {
    fn draw(&self, longest: usize) -> Result<Drawn, String> {
        let mut html = format!("<div class=\"rounds\" style=\"--rounds: {longest}\">");
        for Row { name, cells } in &self.rows {
            if let Some(beyond) = cells.iter().find(|cell| cell.round >= self.rounds) {
                let (round, rounds) = (beyond.round, self.rounds);
                return Err(format!("{}: {name} is in round {round} of {rounds}", self.name));
            }
            html += &format!("<p><span>{}</span>", escape(name));
            for round in 0..self.rounds {
                html += &match cells.iter().find(|cell| cell.round == round) {
                    None => "<i></i>".into(),
                    Some(Cell { kind, text, .. }) => {
                        let class = match kind {
                            Kind::Copy => "is-copy",
                            Kind::There => "is-there",
                            Kind::First => "is-first",
                            Kind::Second => "is-second",
                        };
                        format!("<i class=\"{class}\">{}</i>", escape(text))
                    }
                };
            }
            html += "</p>";
        }
        Ok(Drawn { event: format!("{}: {} rounds", self.name, self.rounds), html: html + "</div>" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(round: usize) -> Trace {
        let cells = vec![Cell { round, kind: Kind::Copy, text: "K0".into() }];
        let rows = vec![Row { name: "memory".into(), cells }];
        let way = |rounds, rows| Way { name: "W".into(), rounds, rows };
        Trace { ways: vec![way(3, rows), way(5, Vec::new())] }
    }

    #[test]
    fn a_row_has_a_cell_for_each_round() {
        let frames = trace(1).draw().unwrap();
        assert_eq!(frames[0].event, "W: 3 rounds");
        let expected =
            "--rounds: 5\"><p><span>memory</span><i></i><i class=\"is-copy\">K0</i><i></i></p>";
        assert!(frames[0].html.contains(expected), "{}", frames[0].html);
        assert!(trace(3).draw().err().unwrap().contains("round 3 of 3"));
    }
}
