//! A guest of the lab with a shell on a box (`make lab`, `tests/lab/README.md`).

use holdfast_tests::agent::binary;
use holdfast_tests::lab::run_shell;

fn main() -> anyhow::Result<()> {
    let holdfast = binary();
    let programs = holdfast.parent().unwrap_or(&holdfast);
    Ok(run_shell(programs)?)
}
