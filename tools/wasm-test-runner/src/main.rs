//! Runs tests that cargo built for wasm32 under Node.
//!
//! The same program as `wasm-bindgen-test-runner` of wasm-bindgen-cli, built from its library: so the exact release is
//! pinned by our own lock file, and nothing is installed outside the build cache.

fn main() -> anyhow::Result<()> {
    wasm_bindgen_cli::wasm_bindgen_test_runner::run_cli_with_args(std::env::args_os())
}
