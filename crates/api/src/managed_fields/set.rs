//! A set of paths, as a trie.

use std::cmp::Ordering;

use super::PathElement;

/// How deep paths go. What lies deeper in an object is owned as one value, and no set that is sent goes deeper; no
/// object that people write comes near.
pub const MAX_DEPTH: usize = 200;

/// A set of paths into an object.
///
/// Each path is in the set on its own: that a field is in it says nothing about what the field is in, nor about what
/// is in the field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Sorted by element; each is a member or has something below.
    pub(super) nodes: Vec<Node>,
}

/// A path element in the trie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) element: PathElement,
    /// The path that ends here is in the set.
    pub(super) member: bool,
    pub(super) children: FieldSet,
}

impl Node {
    fn stays(&self) -> bool {
        self.member || !self.children.is_empty()
    }
}

/// The node of an element among those that are left; what comes before it is not left any more.
fn same_in<'n>(rest: &mut &'n [Node], element: &PathElement) -> Option<&'n Node> {
    while let Some((first, behind)) = rest.split_first() {
        match first.element.cmp(element) {
            Ordering::Less => *rest = behind,
            Ordering::Equal => return Some(first),
            Ordering::Greater => return None,
        }
    }
    None
}

impl FieldSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        FieldSet { nodes: Vec::new() }
    }

    /// A set of paths of fields, each written with dots: `metadata.name`.
    #[must_use]
    pub fn of_fields(paths: &[&str]) -> Self {
        let mut set = FieldSet::new();
        for path in paths {
            let path: Vec<_> = path.split('.').map(PathElement::field).collect();
            set.insert(&path);
        }
        set
    }

    /// Whether there is no path in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn find(&self, element: &PathElement) -> Option<&Node> {
        self.nodes.binary_search_by(|node| node.element.cmp(element)).ok().map(|at| &self.nodes[at])
    }

    /// Adds a path. The empty path, and what is below [`MAX_DEPTH`], is left out.
    pub fn insert(&mut self, path: &[PathElement]) {
        if path.len() > MAX_DEPTH {
            return;
        }
        let mut set = self;
        for (depth, element) in path.iter().enumerate() {
            let at = set.nodes.binary_search_by(|node| node.element.cmp(element)).unwrap_or_else(|at| {
                let (member, children) = (false, FieldSet::new());
                set.nodes.insert(at, Node { element: element.clone(), member, children });
                at
            });
            let node = &mut set.nodes[at];
            node.member |= depth + 1 == path.len();
            set = &mut node.children;
        }
    }

    /// Whether the path is in the set.
    #[must_use]
    pub fn has(&self, path: &[PathElement]) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let mut set = self;
        for element in parents {
            let Some(node) = set.find(element) else { return false };
            set = &node.children;
        }
        set.find(last).is_some_and(|node| node.member)
    }

    /// Adds a node behind all others, if there is anything to it.
    pub(super) fn push(&mut self, element: impl FnOnce() -> PathElement, member: bool, children: FieldSet) {
        if member || !children.is_empty() {
            self.nodes.push(Node { element: element(), member, children });
        }
    }

    /// Puts the nodes in order after they were pushed in another; of equal ones the parts are united.
    pub(super) fn sort(&mut self) {
        if self.nodes.is_sorted_by(|a, b| a.element < b.element) {
            return;
        }
        self.nodes.sort_by(|a, b| a.element.cmp(&b.element));
        self.nodes.dedup_by(|later, earlier| {
            let same = later.element == earlier.element;
            if same {
                earlier.member |= later.member;
                let children = std::mem::take(&mut earlier.children);
                earlier.children = children.union(std::mem::take(&mut later.children));
            }
            same
        });
    }

    /// What is in either.
    #[must_use]
    pub fn union(self, other: FieldSet) -> FieldSet {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let mut others = other.nodes.into_iter().peekable();
        for mut node in self.nodes {
            while let Some(other) = others.next_if(|other| other.element < node.element) {
                nodes.push(other);
            }
            if let Some(other) = others.next_if(|other| other.element == node.element) {
                node.member |= other.member;
                node.children = node.children.union(other.children);
            }
            nodes.push(node);
        }
        nodes.extend(others);
        FieldSet { nodes }
    }

    /// Goes through the nodes together with those of the same element in `other`.
    fn retain(&mut self, other: &FieldSet, mut keep: impl FnMut(&mut Node, Option<&Node>) -> bool) {
        let mut rest = other.nodes.as_slice();
        self.nodes.retain_mut(|node| {
            let same = same_in(&mut rest, &node.element);
            keep(node, same)
        });
    }

    /// What is not in the other.
    #[must_use]
    pub fn difference(mut self, other: &FieldSet) -> FieldSet {
        self.subtract(other);
        self
    }

    fn subtract(&mut self, other: &FieldSet) {
        if other.is_empty() {
            return;
        }
        self.retain(other, |node, same| {
            if let Some(same) = same {
                node.member &= !same.member;
                node.children.subtract(&same.children);
            }
            node.stays()
        });
    }

    /// What is not in the other, nor below anything that is.
    #[must_use]
    pub fn recursive_difference(mut self, other: &FieldSet) -> FieldSet {
        self.subtract_recursively(other);
        self
    }

    fn subtract_recursively(&mut self, other: &FieldSet) {
        if other.is_empty() {
            return;
        }
        self.retain(other, |node, same| match same {
            Some(same) if same.member => false,
            Some(same) => {
                node.children.subtract_recursively(&same.children);
                node.stays()
            }
            None => true,
        });
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut nodes = Vec::new();
        let mut rest = other.nodes.as_slice();
        for node in &self.nodes {
            let Some(same) = same_in(&mut rest, &node.element) else { continue };
            let (member, children) = (node.member && same.member, node.children.intersection(&same.children));
            if member || !children.is_empty() {
                nodes.push(Node { element: node.element.clone(), member, children });
            }
        }
        FieldSet { nodes }
    }

    /// Whether all that is in this is in the other.
    #[must_use]
    pub fn is_subset(&self, other: &FieldSet) -> bool {
        let mut rest = other.nodes.as_slice();
        self.nodes.iter().all(|node| {
            same_in(&mut rest, &node.element)
                .is_some_and(|same| (same.member || !node.member) && node.children.is_subset(&same.children))
        })
    }

    /// All paths: those that end here come before those that go on.
    #[must_use]
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<PathElement>, paths: &mut Vec<Vec<PathElement>>) {
        let behind =
            |prefix: &[PathElement], element: &PathElement| prefix.iter().chain([element]).cloned().collect::<Vec<_>>();
        paths.extend(self.nodes.iter().filter(|node| node.member).map(|node| behind(prefix, &node.element)));
        for node in self.nodes.iter().filter(|node| !node.children.is_empty()) {
            prefix.push(node.element.clone());
            node.children.collect(prefix, paths);
            prefix.pop();
        }
    }
}
