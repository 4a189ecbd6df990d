//! Limits of packages, of what their templates may take, and of the components they make.

use holdfast_config::Limit;

pub static PACKAGE_SIZE: Limit = Limit {
    name: "package-size",
    figure: 1 << 20,
    unit: "bytes in a package",
    reason: "outline, module and templates are text; every version in use lies in the database",
};

pub static PACKAGE_FILES: Limit = Limit {
    name: "package-files",
    figure: 64,
    unit: "files in a package",
    reason: "a state has one template, and a component rarely more than ten states",
};

pub static TEMPLATE_SIZE: Limit = Limit {
    name: "template-size",
    figure: 64 << 10,
    unit: "bytes in a template",
    reason: "it is compiled before it is run, without fuel",
};

pub static MODULE_SIZE: Limit = Limit {
    name: "module-size",
    figure: 256 << 10,
    unit: "bytes in a YANG module",
    reason: "four times the largest module of the OpenConfig profile; libyang reads it whole",
};

pub static SCHEMA_NODES: Limit = Limit {
    name: "schema-nodes",
    figure: 20_000,
    unit: "nodes, types and constraints of a module with its groupings expanded",
    reason: "libyang takes some 2 kB for each node; a thousand parameters with types and constraints are a quarter of it",
};

pub static SCHEMA_DEPTH: Limit = Limit {
    name: "schema-depth",
    figure: 100,
    unit: "levels of a module with its groupings expanded",
    reason: "the stack of a thread has room for a thousand; models in use have fewer than 30",
};

pub static TYPES: Limit = Limit {
    name: "service-types",
    figure: 100,
    unit: "types of services",
    reason: "each adds its module to the models, which are compiled anew when a type comes or goes",
};

pub static COMPONENT_STATES: Limit = Limit {
    name: "component-states",
    figure: 64,
    unit: "states of a component, init and ready among them",
    reason: "each is evaluated in every walk of the instance",
};

pub static TREE_DEPTH: Limit = Limit {
    name: "tree-depth",
    figure: 8,
    unit: "levels of the component tree",
    reason: "each level may multiply; people do not follow more than four",
};

/// Level of the component tree from which on a package is warned of.
pub const WARNED_TREE_DEPTH: usize = 4;

pub static COMPONENTS: Limit = Limit {
    name: "components",
    figure: 1000,
    unit: "components of an instance",
    reason: "all are walked in one transaction",
};

pub static TREE_VISITS: Limit = Limit {
    name: "tree-visits",
    figure: 10_000,
    unit: "visits of tree nodes for an instance",
    reason: "ten for each component that there may be; nodes that create nothing cost time as well",
};

pub static CLAIM_LINES: Limit = Limit {
    name: "claim-lines",
    figure: 30_000,
    unit: "lines put out by one state",
    reason: "a leaf in an entry of its own takes three; lines are counted before they are read",
};

pub static PARAMETERS_SIZE: Limit = Limit {
    name: "parameters-size",
    figure: 1 << 20,
    unit: "bytes in the parameters of an instance",
    reason: "libyang reads them as one document, and templates see all of them",
};

pub static OPAQUE_SIZE: Limit = Limit {
    name: "opaque-size",
    figure: 64 << 10,
    unit: "bytes in the saved values of an instance",
    reason: "they lie in the row of its service plan, which each walk that changes something writes",
};

pub static OFFLINE_WALKS: Limit = Limit {
    name: "offline-walks",
    figure: 1000,
    unit: "walks of an instance without a box",
    reason: "a component with all the states that it may have, each with an action, takes some two hundred",
};

pub static READS: Limit = Limit {
    name: "reads",
    figure: 1000,
    unit: "reads of one evaluation",
    reason: "each is kept as a dependency for as long as the instance lives",
};

pub static READ_MATCHES: Limit = Limit {
    name: "read-matches",
    figure: 10_000,
    unit: "leaves found by the reads of one evaluation",
    reason: "their values are kept with the instance, and compared at each change",
};

pub static EXPRESSION_SIZE: Limit = Limit {
    name: "expression-size",
    figure: 4 << 10,
    unit: "bytes in an expression",
    reason: "it is compiled without fuel, at each evaluation; conditions have some hundred",
};

pub static TAG_TOKENS: Limit = Limit {
    name: "tag-tokens",
    figure: 500,
    unit: "words and marks in an expression or a tag",
    reason: "a chain of 1700 takes the 2 MiB that a thread has for its stack; what people write has some twenty",
};

pub static TEMPLATE_BRANCHES: Limit = Limit {
    name: "template-branches",
    figure: 200,
    unit: "`elif` in a template",
    reason: "a chain of 1700 takes the stack of a thread; so many cases are a table",
};

pub static TEMPLATE_LITERALS: Limit = Limit {
    name: "template-literals",
    figure: 50,
    unit: "lists and maps written in the tags of a template",
    reason: "with 50 nested calls they make a value 2500 deep; printing one of 4300 takes the stack of a thread",
};

pub static TEMPLATE_FILTERS: Limit = Limit {
    name: "template-filters",
    figure: 400,
    unit: "filters in a template",
    reason: "some wrap their input; with 50 nested calls that is 20 000 deep, and letting go of 25 000 takes the stack of a thread",
};

/// Units of work of one template. Measured with minijinja 3.1: this much writes at most 13 MB, and ends within 25 ms.
pub const TEMPLATE_FUEL: u64 = 200_000;

/// Units of work of one expression. Conditions are evaluated far more often than templates, and are one line.
pub const EXPRESSION_FUEL: u64 = 10_000;

/// Nested calls and includes of a template; each takes a frame of the thread's stack.
pub const RECURSION_DEPTH: usize = 50;
