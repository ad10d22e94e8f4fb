//! Where the blocks of the table begin, found by the compiler, so that nothing is read before it is needed.

use super::text::TypeHead;

/// The table itself.
pub(super) const TABLE: &str = include_str!("table.txt");

/// How many lines at the margin begin with each of these letters: groups, resources, types.
const COUNTS: [usize; 3] = count();

/// How many types there are.
pub(super) const TYPES: usize = COUNTS[2];

/// How many resources there are.
pub(super) const RESOURCES: usize = COUNTS[1];

const BLOCKS: usize = COUNTS[0] + COUNTS[1] + COUNTS[2];

/// Where each block begins, in the order of the table: groups, resources, types; and where the table ends.
static OFFSETS: [u32; BLOCKS + 1] = offsets();

/// Which section the block at `at` belongs to, if one begins there.
const fn section(text: &[u8], at: usize) -> Option<usize> {
    if at > 0 && text[at - 1] != b'\n' {
        return None;
    }
    match text[at] {
        b'g' => Some(0),
        b'r' => Some(1),
        b't' => Some(2),
        _ => None,
    }
}

const fn count() -> [usize; 3] {
    let (text, mut counts, mut at) = (TABLE.as_bytes(), [0; 3], 0);
    while at < text.len() {
        if let Some(section) = section(text, at) {
            counts[section] += 1;
        }
        at += 1;
    }
    counts
}

const fn offsets() -> [u32; BLOCKS + 1] {
    let (text, mut offsets, mut found, mut at) = (TABLE.as_bytes(), [0; BLOCKS + 1], 0, 0);
    while at < text.len() {
        if section(text, at).is_some() {
            offsets[found] = at as u32;
            found += 1;
        }
        at += 1;
    }
    offsets[found] = text.len() as u32;
    offsets
}

fn block(at: usize) -> &'static str {
    &TABLE[OFFSETS[at] as usize..OFFSETS[at + 1] as usize]
}

/// The lines that name the group versions: `group apps/v1 apps.v1`.
pub(super) fn groups() -> impl Iterator<Item = &'static str> {
    (0..COUNTS[0]).map(|at| block(at).trim_end())
}

/// The lines of a resource.
pub(super) fn resource_block(resource: usize) -> std::str::Lines<'static> {
    block(COUNTS[0] + resource).lines()
}

/// The lines of a type.
pub(super) fn type_block(ty: usize) -> std::str::Lines<'static> {
    block(COUNTS[0] + COUNTS[1] + ty).lines()
}

/// The first line of a type.
pub(super) fn type_head(ty: usize) -> TypeHead<'static> {
    type_block(ty).next().and_then(TypeHead::parse).expect("codegen has written the table")
}

/// The name of a type, without reading more of its block.
pub(super) fn type_name(ty: usize) -> &'static str {
    let rest = &block(COUNTS[0] + COUNTS[1] + ty)["type ".len()..];
    let end = rest.bytes().position(|c| matches!(c, b' ' | b'\n'));
    &rest[..end.unwrap_or(rest.len())]
}

/// The type of that name.
pub(super) fn find_type(name: &str) -> Option<usize> {
    let (mut low, mut high) = (0, TYPES);
    while low < high {
        let middle = low.midpoint(high);
        match type_name(middle).cmp(name) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Equal => return Some(middle),
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    None
}
