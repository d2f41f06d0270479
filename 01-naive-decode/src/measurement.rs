//! Raw samples of a measurement, and the machine they are from.
//!
//! Every `measure_*` example of every rung keeps what it measured in this form, one JSON file that
//! is committed. Means and plots are drawn from it later; nothing is averaged away here.

use crate::error::{Error, Result};
use crate::kernels::Isa;
use serde::Serialize;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// One run of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measurement {
    /// What it ran on.
    pub machine: MachineName,
    /// What to type at the root of the repository to measure again.
    pub command: String,
    /// One line of the plot each.
    pub series: Vec<Series>,
}

/// What a reader needs to know of a machine to judge its figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MachineName {
    /// The processor, as it names itself.
    pub cpu: String,
    /// How many threads it runs at once.
    pub cores: usize,
    /// The widest instructions that the kernels used.
    pub simd: String,
    /// Operating system.
    pub os: String,
    /// Day of the measurement, UTC: 2026-11-20.
    pub date: String,
}

/// Samples of one quantity at rising `x`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// What was measured: "naive", "memory bandwidth".
    pub name: String,
    /// Unit of the samples: "ms", "GB/s".
    pub unit: String,
    /// `(x, samples)`: `x` rises, the samples stand in the order in which they were taken.
    pub points: Vec<(f64, Vec<f64>)>,
}

/// The middle one; of an even number, the upper of the two.
///
/// # Panics
/// If there are none.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

impl Measurement {
    /// What the example `measure_*` of a package measured on this machine.
    pub fn by(package: &str, example: &str, series: Vec<Series>) -> Self {
        let mut command = format!("cargo run --release -p {package} --example {example}");
        let arguments = typed(std::env::args().skip(1));
        if !arguments.is_empty() {
            command += &format!(" -- {arguments}");
        }
        Measurement { machine: MachineName::this(), command, series }
    }

    /// Writes the measurement where it was asked for, and says so.
    ///
    /// # Errors
    /// As [`Measurement::write`].
    pub fn keep(&self, path: Option<&Path>) -> Result<()> {
        if let Some(path) = path {
            self.write(path)?;
            println!("\nraw samples: {}", path.display());
        }
        Ok(())
    }

    /// Writes the measurement as JSON, creating the folder it goes to.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let failed = |source| Error::Io { path: path.to_path_buf(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut json = serde_json::to_string_pretty(self).map_err(|e| failed(e.into()))?;
        json.push('\n');
        std::fs::write(path, json).map_err(failed)
    }
}

/// Arguments as another reader would type them: without the place that samples are written to, files
/// without the folders that they are in here, and in quotes where a shell would make something else of them.
pub fn typed(arguments: impl Iterator<Item = String>) -> String {
    let mut shown = Vec::new();
    let mut arguments = arguments.filter(|argument| !argument.starts_with("--json="));
    while let Some(argument) = arguments.next() {
        if argument == "--json" {
            drop(arguments.next());
            continue;
        }
        // A path may stand alone, or after the name of its option.
        let option =
            argument.find('=').filter(|_| argument.starts_with("--")).map_or(0, |at| at + 1);
        let (option, value) = argument.split_at(option);
        let path = Path::new(value);
        shown.push(match path.file_name() {
            Some(name) if path.is_absolute() => format!("{option}{}", name.to_string_lossy()),
            _ => argument,
        });
    }
    let quoted: Vec<String> = shown.into_iter().map(quoted).collect();
    quoted.join(" ")
}

fn quoted(argument: String) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_=./,:+@%".contains(letter);
    match !argument.is_empty() && argument.chars().all(is_plain) {
        true => argument,
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}

impl MachineName {
    /// This machine, today.
    pub fn this() -> Self {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let (year, month, day) = date_of(seconds / 86_400);
        MachineName {
            cpu: cpu_name().unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            simd: Isa::best().name().into(),
            os: std::env::consts::OS.into(),
            date: format!("{year}-{month:02}-{day:02}"),
        }
    }
}

fn cpu_name() -> Option<String> {
    let name = if cfg!(target_os = "linux") {
        let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = info.lines().find(|line| line.starts_with("model name"))?;
        line.split_once(':')?.1.to_string()
    } else if cfg!(target_os = "macos") {
        let asked = ["-n", "machdep.cpu.brand_string"];
        let output = std::process::Command::new("sysctl").args(asked).output().ok()?;
        String::from_utf8(output.stdout).ok()?
    } else {
        std::env::var("PROCESSOR_IDENTIFIER").ok()? // Windows
    };
    Some(name.trim().to_string()).filter(|name| !name.is_empty())
}

/// Year, month and day of the Gregorian calendar, so many days after 1970-01-01.
pub fn date_of(days: u64) -> (u64, u64, u64) {
    // Count from 0000-03-01, so that a leap day is the last of its year and of its 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_no_folder_of_this_machine() {
        let arguments = ["--model", "/home/me/x.gguf", "--json", "/tmp/out.json", "--words", "400"];
        let command = typed(arguments.iter().map(|argument| argument.to_string()));
        assert_eq!(command, "--model x.gguf --words 400");
        let joined = ["--model=/home/me/x.gguf", "--at=1/2", "a=/b"].map(str::to_string);
        assert_eq!(typed(joined.into_iter()), "--model=x.gguf --at=1/2 a=/b");
        assert_eq!(typed(["--json=a".to_string()].into_iter()), "");
    }

    #[test]
    fn what_a_shell_would_take_apart_is_in_quotes() {
        let arguments = ["--model", "my models/x.gguf", "--texts", "it's $5", ""];
        let command = typed(arguments.iter().map(|argument| argument.to_string()));
        assert_eq!(command, r"--model 'my models/x.gguf' --texts 'it'\''s $5' ''");
    }

    #[test]
    fn days_become_dates() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_777, (2026, 11, 20)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date_of(days), date);
        }
    }

    #[test]
    fn a_measurement_is_written_as_the_book_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("measurements/x.json");
        let points = vec![(1.0, vec![2.0, 3.0])];
        let series = vec![Series { name: "naive".into(), unit: "ms".into(), points }];
        let machine = MachineName::this();
        Measurement { machine, command: "cargo run".into(), series }.write(&path).unwrap();
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert!(!json["machine"]["cpu"].as_str().unwrap().is_empty());
        assert_eq!(json["command"], "cargo run");
        assert_eq!(json["series"][0]["points"], serde_json::json!([[1.0, [2.0, 3.0]]]));
    }
}
