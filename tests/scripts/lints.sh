# To be sourced: from here on, cargo builds the workspace with clippy's compiler driver, and each warning of rustc and clippy
# is an error. One build lints and makes the programs; `cargo clippy` would compile everything a second time to lint
# alone. The variables are those that `cargo clippy` sets itself; tests/lints.rs notices when they no longer work.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
