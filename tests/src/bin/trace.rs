//! `make trace`: requirements that the tests prove, and those that are open.
//!
//! `trace [--brief] [SECTION...]` prints the counts by section, what deviates on purpose, what is proven in part
//! and, unless brief, what is open. It fails when a tag names an unknown requirement, one that deviates or one that has no
//! place in the engine's design (`agent/scheduler/SCENARIOS.md`).
#![allow(clippy::print_stdout, reason = "the report is what this program is for")]

use std::process::ExitCode;

use anyhow::Result;
use holdfast_tests::sources::workspace;
use holdfast_tests::trace::Trace;

fn main() -> Result<ExitCode> {
    let mut sections: Vec<String> = std::env::args().skip(1).collect();
    let brief = sections.iter().any(|argument| argument == "--brief");
    sections.retain(|argument| argument != "--brief");

    let trace = Trace::read(&workspace())?;
    print!("{}", trace.report(brief, &sections));
    let problems = trace.problems();
    for problem in &problems {
        println!("error: {problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
