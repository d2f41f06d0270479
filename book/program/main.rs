//! Builds, checks and serves the book.
//!
//! mdBook does the work, as a library; what this book has beyond it stands here:
//!
//! - [`passes`]: the mark-up that a chapter may use, one file for each kind
//! - [`place`]: where the repository and the book lie
//! - [`page`], [`html`], [`digits`]: what passes are made of
//! - [`samples`], [`plot`], [`axis`], [`roofline`]: figures, drawn from kept samples
//! - [`verified`]: the tests behind quiz answers
//! - [`check`], [`links`], [`warnings`]: what must be right before the book is let out
//! - [`render`], [`serve`]: from chapters to pages to a browser
//! - [`workbook`]: a copy of the workspace with functions left to the reader

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod axis;
mod check;
mod digits;
mod html;
mod links;
mod page;
mod passes;
mod place;
mod plot;
mod render;
mod roofline;
mod samples;
mod serve;
mod verified;
mod warnings;
mod workbook;

/// Builds the book and serves it on this machine.
#[derive(Parser)]
#[command(name = "book")]
struct Arguments {
    /// Port to serve on; 0 for any that is free.
    #[arg(long, default_value_t = 4040)]
    port: u16,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Write the pages to target/book.
    Build,
    /// Look for everything that is wrong with the book: code that no test compiles, dead links, missing samples,
    /// quiz answers that no test holds, formulas that do not parse.
    Check,
    /// Copy the workspace into a folder, with functions left open for you to write; tests say when they are right.
    Workbook {
        /// A new folder.
        folder: PathBuf,
        /// Exercises, by name or by number of their rung; all if none is named.
        which: Vec<String>,
        /// Give these functions of an existing workbook their bodies back.
        #[arg(long)]
        solve: bool,
    },
    /// Run the tests of all exercises, with each solved and with each open.
    ProveWorkbook,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let place = place::Place::here();
    match arguments.command {
        None => serve::serve(&place, &place.root.join("target/book-served"), arguments.port)?,
        Some(Command::Build) => {
            let output = place.root.join("target/book");
            render::render(&place, &output, render::Reload::Never)?;
            println!("Open {} in a browser.", output.join("index.html").display());
        }
        Some(Command::Check) => {
            let book = check::problems(&place)?.into_iter().map(|problem| problem.to_string());
            let problems: Vec<_> = book.chain(workbook::problems(&place)?).collect();
            for problem in &problems {
                eprintln!("{problem}");
            }
            if !problems.is_empty() {
                eprintln!(
                    "{} problem{} in the book",
                    problems.len(),
                    if problems.len() == 1 { "" } else { "s" }
                );
                return Ok(ExitCode::FAILURE);
            }
            println!("Nothing is wrong with the book.");
        }
        Some(Command::Workbook { folder, which, solve: false }) => {
            workbook::write(&place, &folder, &which)?;
        }
        Some(Command::Workbook { folder, which, solve: true }) => {
            workbook::solve(&place, &folder, &which)?;
        }
        Some(Command::ProveWorkbook) => workbook::prove(&place)?,
    }
    Ok(ExitCode::SUCCESS)
}
