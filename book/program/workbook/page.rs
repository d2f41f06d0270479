//! What a workbook gives to read: which functions are open, what to read first, and how to see whether they are right.

use std::fmt::Write;

use super::Exercise;
use crate::place::Place;

/// `WORKBOOK.md`.
pub(super) fn text(place: &Place, exercises: &[Exercise]) -> anyhow::Result<String> {
    let mut text = String::from(
        "# Workbook\n\n\
         This is a copy of the workspace in which some functions only say `todo!`. Read the page of the book, write the \
         function, and run its tests: they fail now, and pass when it is right. Work in the order of this list, as later \
         rungs call what earlier ones have.\n\n\
         Where you are stuck, or want to go on, give a function its body back, from the folder that this copy was made \
         in:\n\n\
         ```sh\ncargo workbook PATH-TO-THIS-FOLDER --solve NAME\n```\n",
    );
    let mut rung = 0;
    for exercise in exercises {
        let Exercise { name, page, file, function, think, .. } = exercise;
        if exercise.rung != rung {
            rung = exercise.rung;
            write!(text, "\n## Rung {rung:02}\n")?;
        }
        write!(text, "\n### {name}\n\n{think}\n\n")?;
        writeln!(text, "- Read: `book/src/{page}`")?;
        writeln!(text, "- Write: `{function}` in `{file}`")?;
        writeln!(text, "- Run:\n\n```sh")?;
        for test in exercise.tests(place)? {
            writeln!(text, "{}", test.command())?;
        }
        text.push_str("```\n");
    }
    Ok(text)
}
