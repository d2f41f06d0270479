//! Builds, checks and serves the book.
//!
//! mdBook does the work, as a library; what this book has beyond it stands here:
//!
//! - [`passes`]: the mark-up that a chapter may use, one file for each kind
//! - [`page`], [`html`], [`digits`]: what passes are made of
//! - [`samples`], [`plot`], [`axis`], [`roofline`]: figures, drawn from kept samples
//! - [`verified`]: the tests behind quiz answers
//! - [`check`], [`links`], [`warnings`]: what must be right before the book is let out
//! - [`render`], [`serve`]: from chapters to pages to a browser

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
            let problems = check::problems(&place)?;
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
    }
    Ok(ExitCode::SUCCESS)
}
