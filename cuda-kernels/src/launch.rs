//! Grids and blocks: for each kernel one function from shapes to a [`Launch`].

/// Tokens in a block of the paged cache that [`rope_cache`] writes.
pub const BLOCK_TOKENS: usize = 16;

/// Threads in a block of every kernel that works through whole rows; `THREADS` in `cuda/common.cuh`.
const THREADS: usize = 256;
/// CUDA's limit for the first dimension of a grid.
const MAX_GRID_X: usize = i32::MAX as usize;
/// CUDA's limit for the second dimension of a grid.
const MAX_GRID_Y: usize = 65_535;
/// The kernels count a row's elements in 32 bits with a sign, and go on from one stride past the end.
const MAX_WIDTH: usize = i32::MAX as usize - THREADS;

const RMS_NORM: &str = include_str!("../ptx/rms_norm.ptx");
const SWIGLU: &str = include_str!("../ptx/swiglu.ptx");
const EMBEDDING: &str = include_str!("../ptx/embedding.ptx");
const ARGMAX: &str = include_str!("../ptx/argmax.ptx");
const ROPE_CACHE: &str = include_str!("../ptx/rope_cache.ptx");

/// A shape that a kernel cannot be launched for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kernel}: {what} is {found}; it must be {expected}")]
pub struct Error {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Which of its shapes is wrong.
    pub what: &'static str,
    /// What was asked for.
    pub found: usize,
    /// What would be right.
    pub expected: String,
}

/// What a launch needs beside the parameters. Parameters are listed, with their shapes, in the kernel's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// The module's text.
    pub ptx: &'static str,
    /// The kernel's name in the module.
    pub entry: &'static str,
    /// Blocks in x and y; z is 1.
    pub grid: [u32; 2],
    /// Threads in a block, in x; y and z are 1.
    pub threads: u32,
}

fn within(
    kernel: &'static str,
    what: &'static str,
    found: usize,
    most: usize,
) -> Result<u32, Error> {
    if (1..=most).contains(&found) {
        return Ok(found as u32);
    }
    Err(Error { kernel, what, found, expected: format!("from 1 to {most}") })
}

/// One block for each row.
fn by_row(
    ptx: &'static str,
    entry: &'static str,
    rows: usize,
    width: usize,
) -> Result<Launch, Error> {
    within(entry, "width", width, MAX_WIDTH)?;
    let rows = within(entry, "number of rows", rows, MAX_GRID_X)?;
    Ok(Launch { ptx, entry, grid: [rows, 1], threads: THREADS as u32 })
}

/// RMSNorm of `[rows][width]`.
///
/// # Errors
/// If there is nothing to do, or more than a grid or a 32-bit index can hold.
pub fn rms_norm(rows: usize, width: usize) -> Result<Launch, Error> {
    by_row(RMS_NORM, "rms_norm", rows, width)
}

/// The residual `[rows][width]` with `x` added, and RMSNorm of that.
///
/// # Errors
/// As [`rms_norm`].
pub fn add_rms_norm(rows: usize, width: usize) -> Result<Launch, Error> {
    by_row(RMS_NORM, "add_rms_norm", rows, width)
}

/// SwiGLU's gate: `[rows][2 * width]` to `[rows][width]`.
///
/// # Errors
/// As [`rms_norm`]; rows are the grid's second dimension here and at most 65,535.
pub fn swiglu(rows: usize, width: usize) -> Result<Launch, Error> {
    let entry = "swiglu";
    let columns = within(entry, "width", width, MAX_WIDTH)?.div_ceil(THREADS as u32);
    let rows = within(entry, "number of rows", rows, MAX_GRID_Y)?;
    Ok(Launch { ptx: SWIGLU, entry, grid: [columns, rows], threads: THREADS as u32 })
}

/// Rows of an embedding table: `[rows]` tokens to `[rows][width]`.
///
/// # Errors
/// As [`rms_norm`].
pub fn embedding(rows: usize, width: usize) -> Result<Launch, Error> {
    by_row(EMBEDDING, "embedding", rows, width)
}

/// The token with the largest score in each row of `[rows][vocabulary]`, the lowest id among equals; `u32::MAX` where
/// a score is NaN or +inf, or none is above -inf.
///
/// # Errors
/// As [`rms_norm`].
pub fn argmax(rows: usize, vocabulary: usize) -> Result<Launch, Error> {
    by_row(ARGMAX, "argmax", rows, vocabulary)
}

/// RoPE on queries and keys, and keys and values into the paged cache.
///
/// # Errors
/// If the head size is not 64 or 128, if there are no heads or more than 4,096, or if there are no rows or more than
/// 65,535.
pub fn rope_cache(
    rows: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
) -> Result<Launch, Error> {
    let entry = "rope_cache";
    if ![64, 128].contains(&head_dim) {
        let (what, expected) = ("head size", "64 or 128".into());
        return Err(Error { kernel: entry, what, found: head_dim, expected });
    }
    let heads = within(entry, "number of heads", heads, 4_096)?;
    let kv_heads = within(entry, "number of kv heads", kv_heads, 4_096)?;
    let rows = within(entry, "number of rows", rows, MAX_GRID_Y)?;
    let grid = [heads + 2 * kv_heads, rows];
    Ok(Launch { ptx: ROPE_CACHE, entry, grid, threads: head_dim as u32 / 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_launch_names_a_kernel_of_its_module() {
        let launches = [
            rms_norm(3, 100),
            add_rms_norm(3, 100),
            swiglu(3, 257),
            embedding(3, 100),
            argmax(3, 100),
            rope_cache(3, 4, 2, 64),
        ];
        for launch in launches {
            let launch = launch.unwrap();
            let entry = format!(".visible .entry {}(", launch.entry);
            assert!(launch.ptx.contains(&entry), "{} is not in its module", launch.entry);
            assert_eq!(launch.threads % 32, 0, "{}: whole warps", launch.entry);
            // Kernels that say how many threads they take are given so many.
            let body = &launch.ptx[launch.ptx.find(&entry).unwrap()..];
            let head = &body[..body.find("\n{").unwrap()];
            let most = head.lines().find_map(|line| line.strip_prefix(".maxntid "));
            if let Some(most) = most {
                assert_eq!(most, format!("{}, 1, 1", launch.threads), "{}", launch.entry);
            }
        }
    }

    #[test]
    fn grids_cover_every_row_and_column() {
        assert_eq!(argmax(7, 1).unwrap().grid, [7, 1]);
        assert_eq!(swiglu(5, 256).unwrap().grid, [1, 5]);
        assert_eq!(swiglu(5, 257).unwrap().grid, [2, 5]);
        let launch = rope_cache(9, 8, 2, 128).unwrap();
        assert_eq!((launch.grid, launch.threads), ([12, 9], 64));
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused_by_name() {
        let refused = rope_cache(1, 4, 2, 80).unwrap_err().to_string();
        assert_eq!(refused, "rope_cache: head size is 80; it must be 64 or 128");
        let refused = swiglu(65_536, 8).unwrap_err().to_string();
        assert_eq!(refused, "swiglu: number of rows is 65536; it must be from 1 to 65535");
        assert!(rms_norm(0, 8).is_err() && rms_norm(1, 0).is_err());
        assert!(argmax(1, usize::MAX).is_err() && embedding(usize::MAX, 1).is_err());
        assert!(rope_cache(1, usize::MAX, 1, 64).is_err());
    }
}
