#!/usr/bin/env bash
# Builds simulator.wasm and kept.json anew, after any change to the files that the figure is built from.
#
# With rustup: `rustup target add wasm32-unknown-unknown`, then this script. Without that target, Debian's packages
# rustc-web, libstd-rust-web-dev, libstd-rust-web-1.96, rust-web-src and libllvm22 will do, unpacked (dpkg -x) into a
# folder that RUSTC_WEB_ROOT names: the standard library is then built along.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# Small before fast: a page carries it.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=z CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1
export CARGO_PROFILE_RELEASE_PANIC=abort CARGO_PROFILE_RELEASE_DEBUG=none CARGO_PROFILE_RELEASE_STRIP=symbols
target=wasm32-unknown-unknown
build=(cargo build --locked --release --package simulator-figure --lib --target "$target" --target-dir target/figures)
if [ -n "${RUSTC_WEB_ROOT:-}" ]; then
    web=$RUSTC_WEB_ROOT/usr
    host=$(rustc -vV | sed -n 's/^host: //p')
    LD_LIBRARY_PATH=$web/lib/x86_64-linux-gnu:$web/lib/llvm-22/lib RUSTC=$web/bin/rustc RUSTC_BOOTSTRAP=1 \
        CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER="$(rustc --print sysroot)/lib/rustlib/$host/bin/rust-lld" \
        RUSTFLAGS="-C linker-flavor=wasm-ld" "${build[@]}" -Zbuild-std=std,panic_abort
else
    "${build[@]}"
fi
cp "target/figures/$target/release/simulator_figure.wasm" book/figures/simulator/simulator.wasm
env -u CARGO_PROFILE_RELEASE_OPT_LEVEL KEEP=1 cargo test --locked --package simulator-figure --test kept the_page
ls -l book/figures/simulator/simulator.wasm
