//! Parts of libyang's compiled schema that its safe interface lacks: restrictions of types, extensions,
//! conditions. Everything is copied; no pointer leaves this module, except as a number. Modules are loaded here, too, because the
//! safe interface keeps a copy of their texts for each import.
#![allow(
    unsafe_code,
    reason = "the safe interface of yang5 has no access to ranges, patterns, enums and extensions, and leaks imported texts"
)]
// Invariants, for all of the module:
// * Each raw pointer comes from a `SchemaNode` or `SchemaModule`, which borrow their `Context`; libyang
//   frees nothing of a context before the context itself, and nothing changes it while it is borrowed.
// * A pointer to a compiled type points to the struct that belongs to its `basetype`; libyang casts alike.
// * A sized array is null or has its number of items, a u64, right in front of the first one.
// * Texts are null or end with a zero byte; libyang checks schema files for UTF-8.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};

use smol_str::SmolStr;
use yang5::context::Context;
use yang5::ffi;
use yang5::schema::{SchemaInputFormat, SchemaModule, SchemaNode, SchemaNodeKind};

use super::compile::Sources;

/// Loads modules that may import each other. Unlike the embedded modules of yang5, which it copies anew for each import and
/// never frees, the texts go when all are loaded.
pub(super) fn load_modules(context: &mut Context, sources: Sources) -> Result<(), yang5::Error> {
    // No text of ours has a zero byte.
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let texts: ModuleTexts = sources.iter().map(|(name, source)| (*name, text(source))).collect();
    let modules: Vec<_> = sources.iter().map(|(name, _)| (*name, None, &[][..])).collect();
    // SAFETY: the callback reads `texts` alone, which live until it is unset.
    unsafe { context.set_module_import_callback(import, (&raw const texts).cast_mut().cast()) };
    let loaded = context.load_modules(&modules);
    context.unset_embedded_modules();
    loaded
}

/// Reason for which libyang refuses a module, and the line of its text where that is known.
#[derive(Debug)]
pub(super) struct ModuleError {
    pub(super) reason: String,
    pub(super) line: Option<usize>,
}

/// Parses a module that is not in the binary. libyang reports the reason first, and then that the module as a whole failed; so
/// all of its reports are kept meanwhile.
pub(super) fn parse_module<'c>(
    context: &'c Context,
    text: &str,
) -> Result<SchemaModule<'c>, ModuleError> {
    let known = context.modules(false).next();
    // SAFETY: the module belongs to the context, which outlives this function.
    let raw = known.map_or(std::ptr::null_mut(), |it| unsafe { (*it.as_raw()).ctx });
    let mut options = ffi::LY_LOSTORE;
    // SAFETY: the options are those of this thread alone, and live until they are restored below.
    let before = unsafe {
        ffi::ly_err_clean(raw, std::ptr::null_mut());
        ffi::ly_temp_log_options(&raw mut options)
    };
    let parsed = SchemaModule::parse_string(context, text, SchemaInputFormat::YANG);
    let parsed = parsed.map_err(|last| {
        // SAFETY: the list belongs to the context and this thread; nothing is reported while it is read.
        let first = unsafe { ffi::ly_err_first(raw).as_ref() };
        // SAFETY: a report has a text or null.
        let reason = first.and_then(|it| unsafe { text_of(it.msg) });
        ModuleError {
            reason: reason.unwrap_or_else(|| last.to_string()),
            line: first.and_then(|it| usize::try_from(it.line).ok()).filter(|line| *line > 0),
        }
    });
    // SAFETY: these are the options of before.
    unsafe { ffi::ly_temp_log_options(before) };
    parsed
}

/// Copies a text of libyang.
///
/// # Safety
/// `text` is null or ends with a zero byte.
unsafe fn text_of(text: *const c_char) -> Option<String> {
    // SAFETY: as this function asks for.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Texts of modules by their names.
type ModuleTexts = BTreeMap<&'static str, CString>;

/// Gives libyang the text of a module, which stays ours.
///
/// # Safety
/// `name` ends with a zero byte, `texts` points to [`ModuleTexts`], and the others to places that may be written.
unsafe extern "C" fn import(
    name: *const c_char,
    _revision: *const c_char,
    submodule: *const c_char,
    _submodule_revision: *const c_char,
    texts: *mut c_void,
    format: *mut ffi::LYS_INFORMAT::Type,
    data: *mut *const c_char,
    _free_data: *mut ffi::ly_module_imp_data_free_clb,
) -> ffi::LY_ERR::Type {
    // SAFETY: as this function asks for.
    let (name, texts) = unsafe { (CStr::from_ptr(name), &*texts.cast::<ModuleTexts>()) };
    let found = name.to_str().ok().and_then(|name| texts.get(name));
    let Some(text) = found.filter(|_| submodule.is_null()) else {
        return ffi::LY_ERR::LY_ENOTFOUND;
    };
    // SAFETY: as this function asks for; libyang copies the text before the callback is unset.
    unsafe {
        *format = ffi::LYS_INFORMAT::LYS_IN_YANG;
        *data = text.as_ptr();
    }
    ffi::LY_ERR::LY_SUCCESS
}

/// A compiled type, copied. Ranges are as written, `None` where the type is not restricted.
#[derive(Debug)]
pub(super) enum RawType {
    Bool,
    Empty,
    Int {
        bits: u8,
        ranges: Option<Vec<(i64, i64)>>,
    },
    Uint {
        bits: u8,
        ranges: Option<Vec<(u64, u64)>>,
    },
    Decimal {
        scale: u8,
        ranges: Option<Vec<(i64, i64)>>,
    },
    Str {
        lengths: Option<Vec<(u64, u64)>>,
        patterns: Vec<(SmolStr, bool)>,
    },
    Binary {
        lengths: Option<Vec<(u64, u64)>>,
    },
    Enum(Vec<(SmolStr, i32)>),
    /// Names as `module:name` of the identities that are derived from all bases.
    Identity {
        bases: Vec<SmolStr>,
        fitting: Vec<SmolStr>,
    },
    Bits(Vec<SmolStr>),
    Union(Vec<RawType>),
    /// The type of the target.
    Leafref(Box<RawType>),
    /// A path to an instance, kept as text.
    Instance,
    /// A type with the name of its typedef, without a prefix. Only those of texts and unions are kept.
    Named(SmolStr, Box<RawType>),
}

/// An extension statement: the module that defines it, its name and its argument.
#[derive(Debug)]
pub(super) struct RawExtension {
    pub(super) module: SmolStr,
    pub(super) name: SmolStr,
    pub(super) argument: Option<SmolStr>,
}

impl RawType {
    /// Name of the typedef that a value of the type is known by.
    pub(super) fn name(&self) -> Option<SmolStr> {
        match self {
            Self::Named(name, _) => Some(name.clone()),
            Self::Leafref(target) => target.name(),
            _ => None,
        }
    }
}

/// The type of a leaf or leaf-list.
pub(super) fn leaf_type(node: &SchemaNode<'_>) -> Option<RawType> {
    let ty = node.leaf_type()?.as_raw();
    // SAFETY: a leaf's type, see the invariants.
    Some(unsafe { read_type(ty) })
}

/// The address of the leaf that a leafref points to, comparable with [`address`].
pub(super) fn leafref_target(node: &SchemaNode<'_>) -> Option<usize> {
    // SAFETY: `node` is a compiled node; the function reads only.
    let target = unsafe { ffi::lysc_node_lref_target(node.as_raw()) };
    (!target.is_null()).then_some(target as usize)
}

/// Identity of a schema node within its context.
pub(super) fn address(node: &SchemaNode<'_>) -> usize {
    node.as_raw() as usize
}

/// The XPath text of each `when` that the node depends on.
pub(super) fn whens(node: &SchemaNode<'_>) -> Vec<String> {
    // SAFETY: see the invariants; a compiled `when` always has its expression.
    unsafe {
        let whens = items(ffi::lysc_node_when(node.as_raw()));
        whens.iter().map(|when| text(ffi::lyxp_get_expr((**when).cond)).to_string()).collect()
    }
}

pub(super) fn node_extensions(node: &SchemaNode<'_>) -> Vec<RawExtension> {
    // SAFETY: see the invariants.
    unsafe { items((*node.as_raw()).exts).iter().map(|e| extension(e)).collect() }
}

pub(super) fn module_extensions(module: &SchemaModule<'_>) -> Vec<RawExtension> {
    // SAFETY: see the invariants; `compiled` is null in modules that are only imported.
    unsafe {
        match (*module.as_raw()).compiled.as_ref() {
            Some(compiled) => items(compiled.exts).iter().map(|e| extension(e)).collect(),
            None => Vec::new(),
        }
    }
}

/// Default values of a leaf-list, as written.
pub(super) fn leaf_list_defaults(node: &SchemaNode<'_>) -> Vec<SmolStr> {
    if node.kind() != SchemaNodeKind::LeafList {
        return Vec::new();
    }
    let node = node.as_raw().cast::<ffi::lysc_node_leaflist>();
    // SAFETY: a node of this kind is such a struct.
    unsafe { items((*node).dflts).iter().map(|value| text(value.str_)).collect() }
}

/// # Safety
/// `raw` is a compiled type, see the invariants; so are those it points to.
unsafe fn read_type(raw: *const ffi::lysc_type) -> RawType {
    // SAFETY: as promised by the caller.
    let (read, name) = unsafe { (read_unnamed(raw), text_of((*raw).name)) };
    match (read, name) {
        (read @ (RawType::Str { .. } | RawType::Union(_)), Some(name)) => {
            RawType::Named(name.into(), Box::new(read))
        }
        (read, _) => read,
    }
}

/// # Safety
/// As [`read_type`].
unsafe fn read_unnamed(raw: *const ffi::lysc_type) -> RawType {
    use ffi::LY_DATA_TYPE;
    // SAFETY: each cast is to the struct of the type's `basetype`.
    unsafe {
        match (*raw).basetype {
            LY_DATA_TYPE::LY_TYPE_BOOL => RawType::Bool,
            LY_DATA_TYPE::LY_TYPE_EMPTY => RawType::Empty,
            LY_DATA_TYPE::LY_TYPE_INT8 => {
                RawType::Int { bits: 8, ranges: signed((*num(raw)).range) }
            }
            LY_DATA_TYPE::LY_TYPE_INT16 => {
                RawType::Int { bits: 16, ranges: signed((*num(raw)).range) }
            }
            LY_DATA_TYPE::LY_TYPE_INT32 => {
                RawType::Int { bits: 32, ranges: signed((*num(raw)).range) }
            }
            LY_DATA_TYPE::LY_TYPE_INT64 => {
                RawType::Int { bits: 64, ranges: signed((*num(raw)).range) }
            }
            LY_DATA_TYPE::LY_TYPE_UINT8 => {
                RawType::Uint { bits: 8, ranges: unsigned((*num(raw)).range) }
            }
            LY_DATA_TYPE::LY_TYPE_UINT16 => {
                RawType::Uint { bits: 16, ranges: unsigned((*num(raw)).range) }
            }
            LY_DATA_TYPE::LY_TYPE_UINT32 => {
                RawType::Uint { bits: 32, ranges: unsigned((*num(raw)).range) }
            }
            LY_DATA_TYPE::LY_TYPE_UINT64 => {
                RawType::Uint { bits: 64, ranges: unsigned((*num(raw)).range) }
            }
            LY_DATA_TYPE::LY_TYPE_DEC64 => {
                let raw = &*raw.cast::<ffi::lysc_type_dec>();
                RawType::Decimal { scale: raw.fraction_digits, ranges: signed(raw.range) }
            }
            LY_DATA_TYPE::LY_TYPE_STRING => {
                let raw = &*raw.cast::<ffi::lysc_type_str>();
                let pattern =
                    |p: &*mut ffi::lysc_pattern| (text((**p).expr), (**p).inverted() != 0);
                RawType::Str {
                    lengths: unsigned(raw.length),
                    patterns: items(raw.patterns).iter().map(pattern).collect(),
                }
            }
            LY_DATA_TYPE::LY_TYPE_BINARY => {
                RawType::Binary { lengths: unsigned((*raw.cast::<ffi::lysc_type_bin>()).length) }
            }
            LY_DATA_TYPE::LY_TYPE_ENUM => {
                let members = items((*raw.cast::<ffi::lysc_type_enum>()).enums);
                RawType::Enum(
                    members.iter().map(|m| (text(m.name), m.__bindgen_anon_1.value)).collect(),
                )
            }
            LY_DATA_TYPE::LY_TYPE_BITS => {
                let bits = items((*raw.cast::<ffi::lysc_type_bits>()).bits);
                RawType::Bits(bits.iter().map(|b| text(b.name)).collect())
            }
            LY_DATA_TYPE::LY_TYPE_IDENT => {
                read_identityref(items((*raw.cast::<ffi::lysc_type_identityref>()).bases))
            }
            LY_DATA_TYPE::LY_TYPE_UNION => {
                let members = items((*raw.cast::<ffi::lysc_type_union>()).types);
                RawType::Union(members.iter().map(|m| read_type(*m)).collect())
            }
            LY_DATA_TYPE::LY_TYPE_LEAFREF => RawType::Leafref(Box::new(read_type(
                (*raw.cast::<ffi::lysc_type_leafref>()).realtype,
            ))),
            _ => RawType::Instance,
        }
    }
}

fn num(raw: *const ffi::lysc_type) -> *const ffi::lysc_type_num {
    raw.cast()
}

/// Reads an identityref, which takes the identities derived from every base.
///
/// # Safety
/// The pointers are compiled identities.
unsafe fn read_identityref(bases: &[*mut ffi::lysc_ident]) -> RawType {
    // SAFETY: as promised by the caller; `derived` holds compiled identities too.
    unsafe {
        let mut fitting: Vec<SmolStr> = Vec::new();
        for (i, base) in bases.iter().enumerate() {
            let mut derived = Vec::new();
            collect_derived(*base, &mut derived);
            if i == 0 {
                fitting = derived;
            } else {
                fitting.retain(|name| derived.contains(name));
            }
        }
        RawType::Identity { bases: bases.iter().map(|b| identity_name(*b)).collect(), fitting }
    }
}

/// # Safety
/// `base` is a compiled identity.
unsafe fn collect_derived(base: *const ffi::lysc_ident, into: &mut Vec<SmolStr>) {
    // SAFETY: as promised by the caller.
    unsafe {
        for derived in items((*base).derived) {
            let name = identity_name(*derived);
            if !into.contains(&name) {
                into.push(name);
                collect_derived(*derived, into);
            }
        }
    }
}

/// # Safety
/// `identity` is a compiled identity.
unsafe fn identity_name(identity: *const ffi::lysc_ident) -> SmolStr {
    // SAFETY: as promised by the caller; an identity always has a module.
    unsafe {
        smol_str::format_smolstr!("{}:{}", text((*(*identity).module).name), text((*identity).name))
    }
}

/// # Safety
/// `range` is null or a compiled range of a signed type.
unsafe fn signed(range: *const ffi::lysc_range) -> Option<Vec<(i64, i64)>> {
    // SAFETY: as promised; libyang fills the signed half of the unions for signed types.
    let part = |p: &ffi::lysc_range_lysc_range_part| unsafe {
        (p.__bindgen_anon_1.min_64, p.__bindgen_anon_2.max_64)
    };
    unsafe { range.as_ref().map(|range| items(range.parts).iter().map(part).collect()) }
}

/// # Safety
/// `range` is null or a compiled range of an unsigned type or a length.
unsafe fn unsigned(range: *const ffi::lysc_range) -> Option<Vec<(u64, u64)>> {
    // SAFETY: as promised; libyang fills the unsigned half of the unions for these.
    let part = |p: &ffi::lysc_range_lysc_range_part| unsafe {
        (p.__bindgen_anon_1.min_u64, p.__bindgen_anon_2.max_u64)
    };
    unsafe { range.as_ref().map(|range| items(range.parts).iter().map(part).collect()) }
}

/// # Safety
/// The extension is compiled; its definition is always set.
unsafe fn extension(raw: &ffi::lysc_ext_instance) -> RawExtension {
    // SAFETY: as promised by the caller.
    unsafe {
        let def = &*raw.def;
        let argument = (!raw.argument.is_null()).then(|| text(raw.argument));
        RawExtension { module: text((*def.module).name), name: text(def.name), argument }
    }
}

/// # Safety
/// `array` is a sized array of libyang; the slice must not outlive the context.
unsafe fn items<'a, T>(array: *const T) -> &'a [T] {
    if array.is_null() {
        return &[];
    }
    // SAFETY: the count stands in front of the first item (`LY_ARRAY_COUNT`).
    unsafe {
        let count = array.cast::<u64>().sub(1).read_unaligned();
        std::slice::from_raw_parts(array, usize::try_from(count).unwrap_or_default())
    }
}

/// # Safety
/// `text` is null or a text of libyang.
unsafe fn text(text: *const c_char) -> SmolStr {
    if text.is_null() {
        return SmolStr::default();
    }
    // SAFETY: as promised by the caller.
    SmolStr::new(unsafe { CStr::from_ptr(text) }.to_string_lossy())
}
