//! Imports between the files of a crate, and the circles among them.
//!
//! A file imports another where it names something that the other defines; what a module merely
//! passes on (`pub use`) is looked up where it is defined. Tests inside files do not count.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, UseTree, Visibility};

/// The files of a crate by module path (`""` is the root, `"a::b"` is `a/b.rs` or `a/b/mod.rs`).
struct Crate {
    modules: HashMap<String, Module>,
}

/// A file.
#[derive(Default)]
struct Module {
    file: String,
    /// What the file defines itself, without its modules.
    items: BTreeSet<String>,
    /// What `use` binds: a name and the path behind it.
    bindings: Vec<Binding>,
    /// Every other path in the file.
    paths: BTreeSet<Vec<String>>,
}

struct Binding {
    name: String,
    path: Vec<String>,
    passes_on: bool,
}

/// Where a path leads.
enum Target {
    Module,
    Item(String),
    Outside,
}

impl Crate {
    /// The crate whose root file is `dir/root`.
    fn read(dir: &Path, root: &str) -> Crate {
        let mut modules = HashMap::new();
        read_module(dir, &dir.join(root), "", &mut modules);
        Crate { modules }
    }

    /// For each file the files it imports.
    fn imports(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, module) in &self.modules {
            let from = edges.entry(module.file.clone()).or_default();
            let files = self.named(name).filter_map(|path| self.file_of(name, path));
            from.extend(files.filter(|file| *file != module.file));
        }
        edges
    }

    /// A path by which the file `from` names something of the file `to`.
    fn why(&self, from: &str, to: &str) -> String {
        let (name, _) =
            self.modules.iter().find(|(_, module)| module.file == from).expect("a file");
        let leads = |path: &&Vec<String>| self.file_of(name, path).as_deref() == Some(to);
        let mut all: Vec<String> =
            self.named(name).filter(leads).map(|path| path.join("::")).collect();
        all.sort();
        all.dedup();
        all.join(", ")
    }

    fn named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Vec<String>> {
        let module = &self.modules[name];
        let used = module.bindings.iter().filter(|binding| !binding.passes_on);
        used.map(|binding| &binding.path).chain(&module.paths)
    }

    fn file_of(&self, name: &str, path: &[String]) -> Option<String> {
        match self.resolve(name, path, 0) {
            Target::Item(module) => Some(self.modules[&module].file.clone()),
            Target::Module | Target::Outside => None,
        }
    }

    /// Where `path` leads when it stands in the module `name`.
    fn resolve(&self, name: &str, path: &[String], depth: usize) -> Target {
        if depth > 16 {
            return Target::Outside;
        }
        let Some(first) = path.first() else { return Target::Module };
        match first.as_str() {
            "crate" => self.inside("", &path[1..], depth),
            "self" => self.inside(name, &path[1..], depth),
            "super" => {
                let parent = name.rsplit_once("::").map_or("", |(parent, _)| parent);
                self.resolve_relative(parent, &path[1..], depth)
            }
            _ => self.inside(name, path, depth),
        }
    }

    fn resolve_relative(&self, name: &str, path: &[String], depth: usize) -> Target {
        match path.first().map(String::as_str) {
            Some("super") => {
                let parent = name.rsplit_once("::").map_or("", |(parent, _)| parent);
                self.resolve_relative(parent, &path[1..], depth)
            }
            _ => self.inside(name, path, depth),
        }
    }

    /// Where the path leads whose first name stands in the module itself.
    fn inside(&self, name: &str, path: &[String], depth: usize) -> Target {
        let Some(first) = path.first() else { return Target::Module };
        let module = &self.modules[name];
        if first == "*" {
            return Target::Item(name.to_owned());
        }
        if module.items.contains(first) {
            return Target::Item(name.to_owned());
        }
        let child = if name.is_empty() { first.clone() } else { format!("{name}::{first}") };
        if self.modules.contains_key(&child) {
            return self.inside(&child, &path[1..], depth + 1);
        }
        if let Some(binding) = module.bindings.iter().find(|binding| binding.name == *first) {
            let mut whole = binding.path.clone();
            whole.extend_from_slice(&path[1..]);
            if whole != path {
                return self.resolve(name, &whole, depth + 1);
            }
        }
        for glob in module.bindings.iter().filter(|binding| binding.name == "*") {
            let mut whole = glob.path[..glob.path.len() - 1].to_vec();
            whole.extend_from_slice(path);
            let found = self.resolve(name, &whole, depth + 1);
            if !matches!(found, Target::Outside) {
                return found;
            }
        }
        Target::Outside
    }
}

fn read_module(dir: &Path, file: &Path, name: &str, modules: &mut HashMap<String, Module>) {
    let text = fs::read_to_string(file).expect("source files are UTF-8");
    let syntax: File = syn::parse_file(&text).expect("source files parse");
    let shown = file.strip_prefix(dir).expect("a file of the crate").display().to_string();
    let mut module = Module { file: shown, ..Module::default() };
    let mut children = Vec::new();
    for item in &syntax.items {
        if is_test(attributes(item)) {
            continue;
        }
        match item {
            Item::Mod(inner) if inner.content.is_none() => children.push(inner.ident.to_string()),
            Item::Use(item) => {
                let passes_on = !matches!(item.vis, Visibility::Inherited);
                bind(&item.tree, &mut Vec::new(), passes_on, &mut module.bindings);
            }
            _ => {
                module.items.extend(name_of(item));
                Paths { module: &mut module }.visit_item(item);
            }
        }
    }
    let base = match file.file_name().and_then(|name| name.to_str()) {
        Some("mod.rs" | "lib.rs" | "main.rs") => file.parent().expect("a folder").to_owned(),
        _ => file.with_extension(""),
    };
    for child in children {
        let path = if name.is_empty() { child.clone() } else { format!("{name}::{child}") };
        let flat = base.join(format!("{child}.rs"));
        let file = if flat.exists() { flat } else { base.join(&child).join("mod.rs") };
        read_module(dir, &file, &path, modules);
    }
    modules.insert(name.to_owned(), module);
}

/// Collects the paths of a file.
struct Paths<'a> {
    module: &'a mut Module,
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string());
        self.module.paths.insert(names.collect());
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        bind(&item.tree, &mut Vec::new(), false, &mut self.module.bindings);
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        tokens(&invoked.tokens, &mut self.module.paths);
        visit::visit_macro(self, invoked);
    }
}

/// The paths in the tokens of a macro call: names joined by `::`.
fn tokens(stream: &TokenStream, paths: &mut BTreeSet<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    for token in stream.clone() {
        match token {
            TokenTree::Ident(name) => {
                if colons != 2 {
                    paths.insert(std::mem::take(&mut path));
                }
                path.push(name.to_string());
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
            other => {
                paths.insert(std::mem::take(&mut path));
                colons = 0;
                if let TokenTree::Group(group) = other {
                    tokens(&group.stream(), paths);
                }
            }
        }
    }
    paths.insert(path);
    paths.remove(&Vec::new());
}

fn bind(tree: &UseTree, path: &mut Vec<String>, passes_on: bool, out: &mut Vec<Binding>) {
    let mut push = |name: String, last: Option<String>| {
        let path = path.iter().cloned().chain(last).collect();
        out.push(Binding { name, path, passes_on });
    };
    match tree {
        UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            bind(&inner.tree, path, passes_on, out);
            path.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            push(path.last().cloned().unwrap_or_default(), None)
        }
        UseTree::Name(name) => push(name.ident.to_string(), Some(name.ident.to_string())),
        UseTree::Rename(name) => push(name.rename.to_string(), Some(name.ident.to_string())),
        UseTree::Glob(_) => push("*".to_owned(), Some("*".to_owned())),
        UseTree::Group(group) => {
            for tree in &group.items {
                bind(tree, path, passes_on, out);
            }
        }
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|name| name == "test")
    })
}

/// Groups of files that import each other, directly or through others; the largest first.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        edges.keys().map(|file| (file, reached(edges, file))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (file, others) in &reach {
        if others.contains(file) {
            let both = others.iter().filter(|other| reach[**other].contains(file));
            groups.insert(both.map(|other| (*other).clone()).collect());
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

fn reached<'a>(
    edges: &'a BTreeMap<String, BTreeSet<String>>,
    from: &'a String,
) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        open.extend(edges[file].iter().filter(|next| found.insert(*next)));
    }
    found
}

/// The circles of a crate, with a reason for every import among their files.
fn report(dir: &str, root: &str) -> String {
    let house = Crate::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(dir), root);
    let edges = house.imports();
    let mut text = String::new();
    for group in circles(&edges) {
        writeln!(text, "{dir}: {} files import each other", group.len()).unwrap();
        for (from, to) in group.iter().flat_map(|from| group.iter().map(move |to| (from, to))) {
            if edges[from].contains(to) {
                writeln!(text, "  {from} imports {}", house.why(from, to)).unwrap();
            }
        }
    }
    text
}

#[test]
fn no_file_imports_one_that_imports_it() {
    let crates = [
        ("src", "lib.rs"),
        ("sass/src", "lib.rs"),
        ("sim/src", "lib.rs"),
        ("sim/runtime/src", "lib.rs"),
        ("src/bin/kiln", "main.rs"),
    ];
    let text: String = crates.map(|(dir, root)| report(dir, root)).concat();
    assert!(text.is_empty(), "\n{text}");
}

/// A crate of three files: what `use`, paths, re-exports and macros bind is found.
#[test]
fn circles_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let all = |text: [&str; 3]| {
        for (name, text) in ["lib.rs", "a.rs", "b.rs"].iter().zip(text) {
            write(name, text);
        }
        circles(&Crate::read(dir.path(), "lib.rs").imports())
    };
    let root = "mod a;\nmod b;\npub use a::A;\n";
    let b = "pub struct B;\n";
    assert_eq!(all([root, "pub struct A(crate::b::B);\n", b]), [[""; 0]; 0]);
    let circle = [["a.rs", "b.rs"]];
    let uses = "use crate::b::B;\npub struct A(B);\n";
    // By name, through what the root passes on, by a path, in a macro.
    assert_eq!(all([root, uses, "use crate::a::A;\npub struct B;\n"]), circle);
    assert_eq!(all([root, uses, "use crate::A;\npub struct B;\n"]), circle);
    assert_eq!(all([root, uses, "pub struct B;\nfn f(_: super::a::A) {}\n"]), circle);
    let named = "pub struct B;\nfn f() { panic!(\"{}\", size_of::<crate::a::A>()) }\n";
    assert_eq!(all([root, uses, named]), circle);
    // Tests do not count.
    let tested = "pub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n";
    assert_eq!(all([root, uses, tested]), [[""; 0]; 0]);
}
