//! Trace of numbered requirements to the tests that prove them.
//!
//! A test says so in a comment, alone above it or at the end of its row: `// proves 1.63, kv.X4`, with `#`
//! in place of the slashes in Python and shell. [`Trace::read`] collects these tags from all sources and
//! holds them against `requirements.tsv` (what must be), `deviations.tsv` (what we do otherwise, on
//! purpose), `partial.tsv` (what the tests of a row leave out) and the tables of `SCENARIOS.md` (what the design
//! of the engine has no place for). Each row has one [`ProofStatus`].
//! [`Trace::problems`] are rows and tags that cannot stand.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::sources;

/// Text between the comment mark and the ids.
const TAG: &str = "proves ";

/// Scenarios of other engines that do not apply to this one: tables whose rows are `| id | why | instead |`.
const SCENARIOS: &str = "agent/scheduler/SCENARIOS.md";

/// Beginning of the ids that may be in [`SCENARIOS`].
const SCENARIO_PREFIX: &str = "kv.";

/// Extensions of the files that may have tags.
const TAGGED_EXTENSIONS: &[&str] = &["go", "py", "rs", "sh"];

/// One row of `requirements.tsv`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub id: String,
    /// `M` must, `FP` must by the feature profiles, `HIGH` must among the operational services, `S` should, `O` may,
    /// `AMB` open in the specification; others as written.
    pub level: String,
    /// Section of its document, such as `1A` or `kv 3.1`.
    pub section: String,
    pub text: String,
}

/// One row of `deviations.tsv`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deviation {
    pub id: String,
    pub what: String,
    pub why: String,
    /// The option with which the agent does as required. If there is one, a test has to prove it.
    pub option: Option<String>,
}

/// One row of `partial.tsv`: a requirement that has tests, which leave something out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partial {
    pub id: String,
    /// The clause that no test covers, or that is not built.
    pub missing: String,
}

/// Status of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofStatus {
    Proven,
    Partly,
    Deviates,
    /// Does not apply to the design.
    Exempt,
    Open,
}

/// One row of a table in `SCENARIOS.md`: a requirement that does not apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exemption {
    pub id: String,
    pub why: String,
    pub instead: String,
    pub line: usize,
}

/// A claim in a source file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    pub id: String,
    pub file: PathBuf,
    pub line: usize,
}

/// All requirements, with their tags and deviations.
#[derive(Debug)]
pub struct Trace {
    requirements: Vec<Requirement>,
    deviations: Vec<Deviation>,
    partial: Vec<Partial>,
    exemptions: Vec<Exemption>,
    tags: Vec<Tag>,
}

/// Counts of one section. The first five add up to its rows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub proven: usize,
    pub partly: usize,
    pub deviating: usize,
    /// Rows that do not apply to the design.
    pub exempt: usize,
    pub open: usize,
    /// Counts of the rows with level `M`, `FP` or `HIGH`.
    pub must_proven: usize,
    pub must_total: usize,
}

impl Trace {
    /// Reads the tables in `workspace/tests` and of the engine, and the tags in every source below `workspace`.
    ///
    /// # Errors
    /// When a file cannot be read or a row has too few columns.
    pub fn read(workspace: &Path) -> Result<Self> {
        let tests = workspace.join("tests");
        let requirements = rows(&tests.join("requirements.tsv"), requirement)?;
        let deviations = rows(&tests.join("deviations.tsv"), deviation)?;
        let partial = rows(&tests.join("partial.tsv"), partial)?;
        let exemptions = exemptions(&workspace.join(SCENARIOS))?;
        let mut tags = tags(workspace)?;
        tags.sort();
        Ok(Self { requirements, deviations, partial, exemptions, tags })
    }

    /// One line for each tag, deviation or exemption that is invalid.
    pub fn problems(&self) -> Vec<String> {
        let ids: BTreeSet<&str> = self.requirements.iter().map(|row| row.id.as_str()).collect();
        let exempt = self.exempt();
        let optional = |row: &&Deviation| row.option.is_some();
        let (optional, always): (Vec<_>, Vec<_>) = self.deviations.iter().partition(optional);
        let deviating: BTreeSet<&str> = always.into_iter().map(|row| row.id.as_str()).collect();
        let mut problems = Vec::new();
        for Tag { id, file, line } in &self.tags {
            let place = format!("{}:{line}", file.display());
            if !ids.contains(id.as_str()) {
                problems.push(format!("{place}: `{id}` is not a requirement"));
            } else if deviating.contains(id.as_str()) {
                problems
                    .push(format!("{place}: {id} deviates on purpose, so nothing can prove it"));
            } else if exempt.contains(id.as_str()) {
                problems.push(format!("{place}: {id} stands in {SCENARIOS} as not applying"));
            }
        }
        for deviation in self.deviations.iter().filter(|row| !ids.contains(row.id.as_str())) {
            problems.push(format!("tests/deviations.tsv: `{}` is not a requirement", deviation.id));
        }
        let tagged = self.tagged();
        for Deviation { id, .. } in optional.iter().filter(|row| !tagged.contains(row.id.as_str()))
        {
            problems.push(format!(
                "tests/deviations.tsv: {id} is done with an option, which no test proves"
            ));
        }
        problems.extend(self.exemption_problems(&ids));
        problems.extend(self.partial_problems());
        problems
    }

    /// Exemptions of unknown ids, exemptions that occur twice, and exemptions without a reason.
    fn exemption_problems(&self, ids: &BTreeSet<&str>) -> Vec<String> {
        let mut exempted = BTreeSet::new();
        let mut problems = Vec::new();
        for Exemption { id, why, instead, line } in &self.exemptions {
            let place = format!("{SCENARIOS}:{line}");
            if !ids.contains(id.as_str()) || !id.starts_with(SCENARIO_PREFIX) {
                problems.push(format!("{place}: `{id}` is not a scenario"));
            }
            if !exempted.insert(id) {
                problems.push(format!("{place}: {id} stands there twice"));
            }
            if why.is_empty() || instead.is_empty() {
                problems.push(format!("{place}: {id} needs a reason, and what is done instead"));
            }
        }
        problems
    }

    /// Rows of `partial.tsv` without a test, or that are in another table as well.
    fn partial_problems(&self) -> Vec<String> {
        let tagged = self.tagged();
        let deviating = self.deviating();
        let exempt = self.exempt();
        let mut partial = BTreeSet::new();
        let mut problems = Vec::new();
        for Partial { id, .. } in &self.partial {
            let place = "tests/partial.tsv";
            if !partial.insert(id) {
                problems.push(format!("{place}: {id} stands there twice"));
            }
            if !tagged.contains(id.as_str()) {
                problems.push(format!("{place}: no test claims `{id}`, not even in part"));
            }
            if deviating.contains(id.as_str()) || exempt.contains(id.as_str()) {
                problems.push(format!("{place}: {id} stands in another table, too"));
            }
        }
        problems
    }

    /// The standing of each requirement.
    fn proof_statuses(&self) -> BTreeMap<&str, ProofStatus> {
        let tagged = self.tagged();
        let deviating = self.deviating();
        let exempt = self.exempt();
        let partial: BTreeSet<&str> = self.partial.iter().map(|row| row.id.as_str()).collect();
        let standing = |id: &str| match id {
            id if deviating.contains(id) => ProofStatus::Deviates,
            id if exempt.contains(id) => ProofStatus::Exempt,
            id if !tagged.contains(id) => ProofStatus::Open,
            id if partial.contains(id) => ProofStatus::Partly,
            _ => ProofStatus::Proven,
        };
        self.requirements.iter().map(|row| (row.id.as_str(), standing(&row.id))).collect()
    }

    /// Counts by section, in the order of `requirements.tsv`.
    pub fn counts(&self) -> Vec<(&str, Count)> {
        let standings = self.proof_statuses();
        let mut order: Vec<&str> = Vec::new();
        let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
        for row in &self.requirements {
            if !counts.contains_key(row.section.as_str()) {
                order.push(&row.section);
            }
            counts.entry(&row.section).or_default().add(standings[row.id.as_str()], row.is_must());
        }
        order.into_iter().map(|section| (section, counts[section])).collect()
    }

    /// The report; without the unproven rows if `brief`, only for `sections` if there are any.
    pub fn report(&self, brief: bool, sections: &[String]) -> String {
        let mut report = Report::default();
        let selected =
            |section: &str| sections.is_empty() || sections.iter().any(|name| name == section);
        report.line(format_args!(
            "{:<8} {:>7} {:>7} {:>9} {:>9} {:>7} {:>9}",
            "section", "proven", "partly", "deviating", "no place", "open", "must"
        ));
        let mut all = Count::default();
        let mut row = |section: &str, count: Count| {
            let Count { proven, partly, deviating, exempt, open, must_proven, must_total } = count;
            let must = format!("{must_proven}/{must_total}");
            report.line(format_args!(
                "{section:<8} {proven:>7} {partly:>7} {deviating:>9} {exempt:>9} {open:>7} {must:>9}"
            ));
        };
        for (section, count) in self.counts().into_iter().filter(|(section, _)| selected(section)) {
            row(section, count);
            all = all.plus(count);
        }
        row("all", all);
        for Deviation { id, what, why, option } in &self.deviations {
            let option = option.iter().map(|option| format!("; proven with {option}"));
            let option: String = option.collect();
            report.line(format_args!("deviates {id}: {what} ({why}){option}"));
        }
        for Partial { id, missing } in &self.partial {
            report.line(format_args!("partly {id}: without {missing}"));
        }
        if !brief {
            let standings = self.proof_statuses();
            let open = |row: &&Requirement| standings[row.id.as_str()] == ProofStatus::Open;
            for row in self.requirements.iter().filter(open).filter(|row| selected(&row.section)) {
                report.line(format_args!(
                    "open {} {} {}: {}",
                    row.section, row.id, row.level, row.text
                ));
            }
        }
        report.0
    }

    fn tagged(&self) -> BTreeSet<&str> {
        self.tags.iter().map(|tag| tag.id.as_str()).collect()
    }

    fn deviating(&self) -> BTreeSet<&str> {
        self.deviations.iter().map(|row| row.id.as_str()).collect()
    }

    fn exempt(&self) -> BTreeSet<&str> {
        self.exemptions.iter().map(|row| row.id.as_str()).collect()
    }
}

impl Count {
    fn add(&mut self, standing: ProofStatus, is_must: bool) {
        let of_standing = match standing {
            ProofStatus::Proven => &mut self.proven,
            ProofStatus::Partly => &mut self.partly,
            ProofStatus::Deviates => &mut self.deviating,
            ProofStatus::Exempt => &mut self.exempt,
            ProofStatus::Open => &mut self.open,
        };
        *of_standing += 1;
        self.must_total += usize::from(is_must);
        self.must_proven += usize::from(is_must && standing == ProofStatus::Proven);
    }

    fn plus(self, other: Self) -> Self {
        Self {
            proven: self.proven + other.proven,
            partly: self.partly + other.partly,
            deviating: self.deviating + other.deviating,
            exempt: self.exempt + other.exempt,
            open: self.open + other.open,
            must_proven: self.must_proven + other.must_proven,
            must_total: self.must_total + other.must_total,
        }
    }
}

impl Requirement {
    fn is_must(&self) -> bool {
        matches!(self.level.as_str(), "M" | "FP" | "HIGH")
    }
}

#[derive(Default)]
struct Report(String);

impl Report {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        self.0 += line.to_string().trim_end();
        self.0.push('\n');
    }
}

/// The ids claimed in one line of source; an invalid list is returned as one id.
fn tag_ids(line: &str) -> Option<Vec<&str>> {
    let claim = ["// ", "# "].iter().find_map(|mark| {
        let at = line.find(&format!("{mark}{TAG}"))?;
        // Documentation quotes tags; a quoted one claims nothing.
        let quoted = line[..at].ends_with('`');
        (!quoted).then(|| &line[at + mark.len() + TAG.len()..])
    });
    let ids = claim?.split([':', ';']).next()?;
    Some(ids.split(',').map(str::trim).filter(|id| !id.is_empty()).collect())
}

/// All tags in programs, scripts and tests below a folder.
fn tags(folder: &Path) -> Result<Vec<Tag>> {
    let mut tags = Vec::new();
    for file in sources::files(folder, TAGGED_EXTENSIONS) {
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        for (index, line) in text.lines().enumerate() {
            let ids = tag_ids(line).unwrap_or_default();
            tags.extend(ids.into_iter().map(|id| Tag {
                id: id.into(),
                file: file.clone(),
                line: index + 1,
            }));
        }
    }
    Ok(tags)
}

/// The rows of a table after its header.
fn rows<T>(file: &Path, row: fn(&[&str]) -> Option<T>) -> Result<Vec<T>> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.is_empty()) {
        let columns: Vec<&str> = line.split('\t').collect();
        let Some(row) = row(&columns) else {
            bail!("{}:{}: too few columns: {line}", file.display(), index + 1);
        };
        rows.push(row);
    }
    Ok(rows)
}

/// The rows of all tables in a Markdown file whose first cell is an id.
fn exemptions(file: &Path) -> Result<Vec<Exemption>> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut rows = Vec::new();
    for (line, row) in (1..).zip(text.lines()) {
        let Some(cells) = row.strip_prefix('|').and_then(|row| row.strip_suffix('|')) else {
            continue;
        };
        let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
        let is_head = cells[0] == "id" || cells[0].chars().all(|c| c == '-');
        if is_head {
            continue;
        }
        let &[id, why, instead] = cells.as_slice() else {
            bail!("{}:{line}: a row has three cells: {row}", file.display());
        };
        rows.push(Exemption { id: id.into(), why: why.into(), instead: instead.into(), line });
    }
    Ok(rows)
}

fn requirement(columns: &[&str]) -> Option<Requirement> {
    let &[id, level, section, text, ..] = columns else { return None };
    let document = id.split('.').next()?;
    let section = section.trim_end_matches('.');
    // Sections of the main document are unique by themselves, those of the others (`kv`, `sv`) are not.
    let numbered = document.starts_with(|c: char| c.is_ascii_digit());
    let section = if numbered { section.to_owned() } else { format!("{document} {section}") };
    Some(Requirement { id: id.into(), level: level.into(), section, text: text.into() })
}

fn deviation(columns: &[&str]) -> Option<Deviation> {
    let &[id, what, why, ref option @ ..] = columns else { return None };
    let option = option.first().filter(|option| !option.is_empty());
    let option = option.map(|&option| option.to_owned());
    Some(Deviation { id: id.into(), what: what.into(), why: why.into(), option })
}

fn partial(columns: &[&str]) -> Option<Partial> {
    let &[id, missing, ..] = columns else { return None };
    Some(Partial { id: id.into(), missing: missing.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_comments_that_name_ids_and_nothing_else() {
        // The mark is replaced here, so that this table claims nothing itself.
        check("    // @1.63, kv.X4", &["1.63", "kv.X4"]);
        check("/// @1.63", &["1.63"]);
        check("# @sv.A1", &["sv.A1"]);
        check("row(1, 2), // @1.2: and a reason", &["1.2"]);
        check("// @that it works", &["that it works"]); // refused later: no such id
        check("//! say `// @1.63` above a test", &[]);
        check("// this test @1.63", &[]);
    }

    #[track_caller]
    fn check(line: &str, want: &[&str]) {
        assert_eq!(tag_ids(&line.replace('@', TAG)).unwrap_or_default(), want);
    }

    #[test]
    fn tags_of_unknown_or_deviating_rows_are_problems() {
        let trace = trace(&["1.1", "1.2", "9.9"], &[]);
        assert_eq!(
            trace.problems(),
            [
                "a.rs:7: 1.2 deviates on purpose, so nothing can prove it",
                "a.rs:7: `9.9` is not a requirement"
            ]
        );
        let first =
            Count { proven: 1, deviating: 1, must_proven: 1, must_total: 1, ..Count::default() };
        let second = Count { open: 2, must_total: 2, ..Count::default() };
        assert_eq!(trace.counts(), [("1A", first), ("kv 2", second)]);
    }

    #[test]
    fn optional_deviations_need_a_test() {
        for (tags, want) in [
            (&["1.2"][..], &[][..]),
            (&[], &["tests/deviations.tsv: 1.2 is done with an option, which no test proves"]),
        ] {
            let mut trace = trace(tags, &[]);
            trace.deviations = deviation(&["1.2", "not", "so", "--so"]).into_iter().collect();
            assert_eq!(trace.problems(), want);
            assert!(trace.report(true, &[]).contains("deviates 1.2: not (so); proven with --so"));
        }
    }

    #[test]
    fn scenario_is_either_proven_or_exempt() {
        let trace = trace(
            &["kv.P1"],
            &[
                ("kv.P1", "x", "y"),
                ("kv.P2", "x", ""),
                ("kv.P2", "x", "y"),
                ("kv.Z1", "x", "y"),
                ("1.1", "x", "y"),
            ],
        );
        assert_eq!(
            trace.problems(),
            [
                "a.rs:7: kv.P1 stands in agent/scheduler/SCENARIOS.md as not applying",
                "agent/scheduler/SCENARIOS.md:1: kv.P2 needs a reason, and what is done instead",
                "agent/scheduler/SCENARIOS.md:2: kv.P2 stands there twice",
                "agent/scheduler/SCENARIOS.md:3: `kv.Z1` is not a scenario",
                "agent/scheduler/SCENARIOS.md:4: `1.1` is not a scenario",
            ]
        );
        let second = Count { exempt: 2, must_total: 2, ..Count::default() };
        assert_eq!(trace.counts()[1], ("kv 2", second));
        assert!(!trace.report(false, &[]).contains("open kv"), "{}", trace.report(false, &[]));
    }

    #[test]
    fn a_row_whose_tests_leave_something_out_is_partly_proven() {
        let row = |id: &str| partial(&[id, "a clause"]).unwrap();
        let partly = |tags: &[&str], rows: &[&str]| Trace {
            partial: rows.iter().map(|id| row(id)).collect(),
            ..trace(tags, &[])
        };
        let counted = partly(&["1.1"], &["1.1"]);
        assert_eq!(counted.problems(), [""; 0]);
        let first = Count { partly: 1, deviating: 1, must_total: 1, ..Count::default() };
        assert_eq!(counted.counts()[0], ("1A", first));
        assert!(counted.report(true, &[]).contains("partly 1.1: without a clause"));
        assert_eq!(
            partly(&["1.1"], &["1.1", "1.1", "kv.P1", "1.2"]).problems(),
            [
                "tests/partial.tsv: 1.1 stands there twice",
                "tests/partial.tsv: no test claims `kv.P1`, not even in part",
                "tests/partial.tsv: no test claims `1.2`, not even in part",
                "tests/partial.tsv: 1.2 stands in another table, too",
            ]
        );
    }

    #[test]
    fn exemptions_are_the_rows_of_markdown_tables() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "Text.\n\n| id | why | instead |\n|---|---|---|\n| kv.P1 | a b | c |\n";
        fs::write(&file, text).unwrap();
        let want =
            Exemption { id: "kv.P1".into(), why: "a b".into(), instead: "c".into(), line: 5 };
        assert_eq!(exemptions(file.path()).unwrap(), [want]);
        fs::write(&file, "| kv.P1 | a |\n").unwrap();
        assert!(exemptions(file.path()).unwrap_err().to_string().contains("three cells"));
    }

    /// Four requirements, one of them deviating, with these tags and these exemptions (one a line, from 0).
    fn trace(tags: &[&str], exempt: &[(&str, &str, &str)]) -> Trace {
        let rows = [
            ["1.1", "M", "1A.", "x"],
            ["1.2", "S", "1A.", "y"],
            ["kv.P1", "M", "2", "z"],
            ["kv.P2", "M", "2", "z"],
        ];
        let tag = |id: &&str| Tag { id: (*id).into(), file: "a.rs".into(), line: 7 };
        let exemption = |(line, &(id, why, instead)): (usize, &(&str, &str, &str))| Exemption {
            id: id.into(),
            why: why.into(),
            instead: instead.into(),
            line,
        };
        Trace {
            requirements: rows.iter().filter_map(|columns| requirement(columns)).collect(),
            deviations: deviation(&["1.2", "not", "so"]).into_iter().collect(),
            partial: Vec::new(),
            exemptions: exempt.iter().enumerate().map(exemption).collect(),
            tags: tags.iter().map(tag).collect(),
        }
    }
}
