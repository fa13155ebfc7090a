//! Rendering of kernel specs to CUDA C++.
//!
//! Templates are embedded in the library; a folder can replace them. This module knows nothing of
//! graphs or devices: it renders the template that the spec names.

mod items;
mod link;
mod wrap;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use include_dir::{Dir, include_dir};
use tera::{Context, Kwargs, State, Tera, Value};

use crate::error::{Error, Result};
use crate::escape::{escaped, is_word};
use crate::kernel::KernelSpec;
use crate::target::Arch;

/// The folder `templates/`, embedded in the library.
static FOLDER: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/templates");

/// A self-contained CUDA C++ source without includes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KernelSource {
    /// Stem of the spec.
    pub stem: String,
    /// Name of the kernel function.
    pub entry: String,
    /// Architecture to compile for.
    pub arch: Arch,
    /// Source text.
    pub text: String,
}

impl KernelSource {
    /// Digest of the source, independent of the compiler.
    pub fn digest(&self) -> [u8; 32] {
        let arch = self.arch.to_string();
        *blake3::Hasher::new()
            .update(arch.as_bytes())
            .update(self.text.as_bytes())
            .finalize()
            .as_bytes()
    }
}

/// A set of templates; clones share it. A template is parsed, with all that it includes, when it is
/// rendered first: a process renders few of them.
#[derive(Debug, Clone)]
pub struct Templates {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// By path without `.tera`.
    texts: HashMap<String, Cow<'static, str>>,
    /// All of them, where they were parsed when they were read.
    whole: Option<Arc<Tera>>,
    /// Those that were rendered.
    parsed: Mutex<HashMap<String, Arc<Parsed>>>,
}

/// A template and all that it includes.
#[derive(Debug)]
struct Parsed {
    tera: Arc<Tera>,
    /// The parameters that they read.
    parameters: BTreeSet<String>,
}

/// What the tags of a template say that Tera does not tell.
#[derive(Debug, Default)]
struct Tags {
    /// Names that `for` or `set` binds: included templates read them.
    bound: Vec<String>,
    includes: Vec<String>,
}

impl Tags {
    fn of(text: &str) -> Tags {
        let mut found = Tags::default();
        for tag in text.split("{%").skip(1).filter_map(|tag| tag.split_once("%}")) {
            let words = tag.0.trim_matches(['-', ' ', '\n']).split_once(' ');
            let (into, names) = match words {
                Some(("for", rest)) => (&mut found.bound, rest.split_once(" in ")),
                Some(("set" | "set_global", rest)) => (&mut found.bound, rest.split_once('=')),
                Some(("include", rest)) => (&mut found.includes, Some((rest, ""))),
                _ => continue,
            };
            let names = names.into_iter().flat_map(|(names, _)| names.split(','));
            into.extend(names.map(|name| name.trim().trim_matches('"').to_owned()));
        }
        found
    }
}

impl Templates {
    /// The templates embedded in the library.
    pub fn embedded() -> &'static Templates {
        static TEMPLATES: OnceLock<Templates> = OnceLock::new();
        TEMPLATES.get_or_init(|| {
            let texts = embedded(&FOLDER).expect("templates are UTF-8");
            let texts = texts.into_iter().map(|(name, text)| (name, Cow::Borrowed(text)));
            Templates::of(texts, None)
        })
    }

    /// Reads templates from a folder laid out as `templates/` in the repository.
    ///
    /// # Errors
    /// `Compile` when the folder cannot be read or a template does not parse.
    pub fn from_dir(dir: &Path) -> Result<Templates> {
        let mut texts = Vec::new();
        collect(dir, dir, &mut texts).map_err(|error| {
            let shown = dir.display();
            Error::compile(format!("failed to read templates from `{shown}`")).caused_by(error)
        })?;
        if texts.is_empty() {
            let shown = dir.display();
            return Err(Error::compile(format!("no *.tera file in template folder `{shown}`")));
        }
        let whole = tera_of(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())))?;
        let texts = texts.into_iter().map(|(name, text)| (name, Cow::Owned(text)));
        Ok(Templates::of(texts, Some(Arc::new(whole))))
    }

    fn of(
        texts: impl Iterator<Item = (String, Cow<'static, str>)>,
        whole: Option<Arc<Tera>>,
    ) -> Templates {
        let (texts, parsed) = (texts.collect(), Mutex::default());
        Templates { inner: Arc::new(Inner { texts, whole, parsed }) }
    }

    /// Replaces the text of one template, by path without `.tera`.
    #[cfg(test)]
    pub(crate) fn with(&self, name: &str, text: &str) -> Templates {
        let mut texts = self.inner.texts.clone();
        texts.insert(name.to_owned(), text.to_owned().into());
        Templates::of(texts.into_iter(), None)
    }

    /// A template and all that it includes.
    fn parsed(&self, template: &str) -> Result<Arc<Parsed>> {
        let known = || self.inner.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parsed) = known().get(template) {
            return Ok(parsed.clone());
        }
        let (mut texts, mut open) = (BTreeMap::new(), vec![template.to_owned()]);
        let mut bound = BTreeSet::new();
        while let Some(name) = open.pop() {
            let Some((name, text)) = self.inner.texts.get_key_value(&name) else { continue };
            if texts.insert(name.as_str(), &**text).is_none() {
                let tags = Tags::of(text);
                bound.extend(tags.bound);
                open.extend(tags.includes);
            }
        }
        let tera = match &self.inner.whole {
            Some(whole) => whole.clone(),
            None => Arc::new(tera_of(texts.into_iter())?),
        };
        let read = tera.get_template_variables(template).map_err(|error| {
            Error::compile(format!("failed to render template `{template}`: {error}"))
        })?;
        let own = read.into_iter().filter(|name| !bound.contains(*name)).map(str::to_owned);
        let parsed = Arc::new(Parsed { parameters: own.collect(), tera });
        known().insert(template.to_owned(), parsed.clone());
        Ok(parsed)
    }

    /// Renders a spec.
    ///
    /// # Errors
    /// `Compile` when the template is missing or reads a parameter that the spec lacks, `Internal`
    /// when the kernel's name or stem is not a word.
    pub fn render(&self, spec: &KernelSpec) -> Result<KernelSource> {
        if let Some(name) = [spec.entry, &spec.stem].into_iter().find(|name| !is_word(name)) {
            let name = escaped(name);
            return Err(Error::internal(format!("failed to name a kernel `{name}`: not a word")));
        }
        let failed = |error: tera::Error| {
            Error::compile(format!("failed to render template `{}`: {error}", spec.template))
        };
        let mut context = Context::from_serialize(&*spec.parameters).map_err(failed)?;
        context.insert("stem", &spec.stem);
        context.insert("entry", spec.entry);
        context.insert("arch", &spec.arch.to_string());
        let parsed = self.parsed(spec.template)?;
        parsed.check_parameters(spec.template, &context)?;
        let text = parsed.tera.render(spec.template, &context).map_err(failed)?;
        Ok(KernelSource {
            stem: spec.stem.clone(),
            entry: spec.entry.to_owned(),
            arch: spec.arch,
            text: wrap::wrapped(&tidy(&link::linked(&text, spec.arch.capability))),
        })
    }
}

impl Parsed {
    /// Checks that there are all parameters that the template reads: Tera takes an undefined one in
    /// a bare `if` for false.
    fn check_parameters(&self, template: &str, context: &Context) -> Result<()> {
        let lacking = self.parameters.iter().filter(|name| !context.contains_key(name));
        let lacking: Vec<&str> = lacking.map(String::as_str).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        let names = lacking.join("`, `");
        Err(Error::compile(format!(
            "failed to render template `{template}`: no parameter `{names}`"
        )))
    }
}

/// Parses templates, by name.
fn tera_of<'a>(texts: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Tera> {
    let mut tera = Tera::new();
    tera.autoescape_on(Vec::<String>::new());
    tera.register_filter("comment", comment);
    tera.add_raw_templates(texts)
        .map_err(|error| Error::compile(format!("failed to parse templates: {error}")))?;
    Ok(tera)
}

/// The filter `comment`: escapes a value so that it cannot end the comment it is written into.
fn comment(value: Value, _: Kwargs, _: &State<'_>) -> Value {
    match value.as_str() {
        Some(text) => Value::from(escaped(text)),
        None => value,
    }
}

/// Removes trailing blanks and repeated blank lines, which template tags leave.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut blank = true;
    for line in text.lines().map(str::trim_end) {
        if !(line.is_empty() && blank) {
            out.push_str(line);
            out.push('\n');
        }
        blank = line.is_empty();
    }
    out
}

/// Whether a file is a template: the folder holds its description, too.
fn is_template(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "tera")
}

/// The name of a template: its path from the root without `.tera`.
fn name_of(relative: &Path) -> String {
    relative.with_extension("").to_string_lossy().into_owned()
}

/// Name and text of every template in an embedded folder; `None` for a text that is not UTF-8.
fn embedded(folder: &'static Dir<'static>) -> Option<Vec<(String, &'static str)>> {
    let own = folder.files().filter(|file| is_template(file.path()));
    let own = own.map(|file| Some((name_of(file.path()), file.contents_utf8()?)));
    let mut texts = own.collect::<Option<Vec<_>>>()?;
    for inner in folder.dirs() {
        texts.extend(embedded(inner)?);
    }
    Some(texts)
}

fn collect(root: &Path, dir: &Path, texts: &mut Vec<(String, String)>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, texts)?;
        } else if is_template(&path) {
            let relative = path.strip_prefix(root).expect("walked from the root");
            texts.push((name_of(relative), std::fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_embedded_parses() {
        let texts = embedded(&FOLDER).expect("templates are UTF-8");
        tera_of(texts.iter().map(|(name, text)| (name.as_str(), *text))).expect("it parses");
    }

    /// Cargo builds anew where an embedded file changes or goes, not where one comes.
    #[test]
    fn what_is_embedded_is_the_folder() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        let mut found = Vec::new();
        collect(&root, &root, &mut found).expect("readable");
        found.sort();
        let embedded = embedded(&FOLDER).expect("templates are UTF-8");
        let mut embedded: Vec<(String, String)> =
            embedded.into_iter().map(|(name, text)| (name, text.to_owned())).collect();
        embedded.sort();
        let names = |of: &[(String, String)]| -> Vec<String> {
            of.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&found), names(&embedded), "touch src/codegen/mod.rs");
        assert!(found.len() > 90 && found == embedded, "a text differs: build again");
    }
}
