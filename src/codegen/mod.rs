//! Rendering of kernel specs to CUDA C++.
//!
//! Templates are embedded in the library; a folder can replace them. This module knows nothing of
//! graphs or devices: it renders the template that the spec names.

mod items;
mod link;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use tera::{Context, Kwargs, State, Tera, Value};

use crate::error::{Error, Result};
use crate::escape::{escaped, is_word};
use crate::kernel::KernelSpec;
use crate::target::Arch;

/// All templates below `templates/`, by path without `.tera`.
const EMBEDDED: &[(&str, &str)] = &[
    ("attention/join.cuh", include_str!("../../templates/attention/join.cuh.tera")),
    ("attention/keys.cuh", include_str!("../../templates/attention/keys.cuh.tera")),
    ("attention/partial.cuh", include_str!("../../templates/attention/partial.cuh.tera")),
    ("attention/problem.cuh", include_str!("../../templates/attention/problem.cuh.tera")),
    ("attention/rows.cuh", include_str!("../../templates/attention/rows.cuh.tera")),
    ("attention/score.cuh", include_str!("../../templates/attention/score.cuh.tera")),
    ("attention/sequence.cuh", include_str!("../../templates/attention/sequence.cuh.tera")),
    (
        "attention/sm75_attention_combine.cu",
        include_str!("../../templates/attention/sm75_attention_combine.cu.tera"),
    ),
    (
        "attention/sm75_attention_simt.cu",
        include_str!("../../templates/attention/sm75_attention_simt.cu.tera"),
    ),
    (
        "attention/sm80_attention_mma.cu",
        include_str!("../../templates/attention/sm80_attention_mma.cu.tera"),
    ),
    (
        "attention/sm90_attention_wgmma.cu",
        include_str!("../../templates/attention/sm90_attention_wgmma.cu.tera"),
    ),
    ("attention/tile.cuh", include_str!("../../templates/attention/tile.cuh.tera")),
    ("device/ops/pointwise.cuh", include_str!("../../templates/device/ops/pointwise.cuh.tera")),
    ("device/ops/reduce.cuh", include_str!("../../templates/device/ops/reduce.cuh.tera")),
    ("device/ops/spread.cuh", include_str!("../../templates/device/ops/spread.cuh.tera")),
    ("device/ptx/address.cuh", include_str!("../../templates/device/ptx/address.cuh.tera")),
    ("device/ptx/anew.cuh", include_str!("../../templates/device/ptx/anew.cuh.tera")),
    ("device/ptx/cluster.cuh", include_str!("../../templates/device/ptx/cluster.cuh.tera")),
    ("device/ptx/convert.cuh", include_str!("../../templates/device/ptx/convert.cuh.tera")),
    ("device/ptx/copy_async.cuh", include_str!("../../templates/device/ptx/copy_async.cuh.tera")),
    ("device/ptx/counter.cuh", include_str!("../../templates/device/ptx/counter.cuh.tera")),
    ("device/ptx/eight.cuh", include_str!("../../templates/device/ptx/eight.cuh.tera")),
    ("device/ptx/exp2.cuh", include_str!("../../templates/device/ptx/exp2.cuh.tera")),
    ("device/ptx/extreme.cuh", include_str!("../../templates/device/ptx/extreme.cuh.tera")),
    ("device/ptx/global.cuh", include_str!("../../templates/device/ptx/global.cuh.tera")),
    ("device/ptx/is_set.cuh", include_str!("../../templates/device/ptx/is_set.cuh.tera")),
    ("device/ptx/mbarrier.cuh", include_str!("../../templates/device/ptx/mbarrier.cuh.tera")),
    ("device/ptx/mma.cuh", include_str!("../../templates/device/ptx/mma.cuh.tera")),
    ("device/ptx/patience.cuh", include_str!("../../templates/device/ptx/patience.cuh.tera")),
    ("device/ptx/peer.cuh", include_str!("../../templates/device/ptx/peer.cuh.tera")),
    ("device/ptx/publish.cuh", include_str!("../../templates/device/ptx/publish.cuh.tera")),
    ("device/ptx/reciprocal.cuh", include_str!("../../templates/device/ptx/reciprocal.cuh.tera")),
    ("device/ptx/registers.cuh", include_str!("../../templates/device/ptx/registers.cuh.tera")),
    ("device/ptx/shared.cuh", include_str!("../../templates/device/ptx/shared.cuh.tera")),
    (
        "device/ptx/store_matrices.cuh",
        include_str!("../../templates/device/ptx/store_matrices.cuh.tera"),
    ),
    (
        "device/ptx/sync_cluster.cuh",
        include_str!("../../templates/device/ptx/sync_cluster.cuh.tera"),
    ),
    ("device/ptx/tagged.cuh", include_str!("../../templates/device/ptx/tagged.cuh.tera")),
    ("device/ptx/tensor_copy.cuh", include_str!("../../templates/device/ptx/tensor_copy.cuh.tera")),
    ("device/ptx/wgmma.cuh", include_str!("../../templates/device/ptx/wgmma.cuh.tera")),
    ("device/tile/boxed.cuh", include_str!("../../templates/device/tile/boxed.cuh.tera")),
    ("device/tile/chunks.cuh", include_str!("../../templates/device/tile/chunks.cuh.tera")),
    (
        "device/tile/depth_major.cuh",
        include_str!("../../templates/device/tile/depth_major.cuh.tera"),
    ),
    ("device/tile/fragment.cuh", include_str!("../../templates/device/tile/fragment.cuh.tera")),
    ("device/tile/narrow.cuh", include_str!("../../templates/device/tile/narrow.cuh.tera")),
    ("device/tile/panels.cuh", include_str!("../../templates/device/tile/panels.cuh.tera")),
    ("device/tile/quad.cuh", include_str!("../../templates/device/tile/quad.cuh.tera")),
    ("device/tile/staging.cuh", include_str!("../../templates/device/tile/staging.cuh.tera")),
    ("device/tile/swizzled.cuh", include_str!("../../templates/device/tile/swizzled.cuh.tera")),
    ("device/tile/words.cuh", include_str!("../../templates/device/tile/words.cuh.tera")),
    ("device/types.cuh", include_str!("../../templates/device/types.cuh.tera")),
    ("gemm/epilogue.cuh", include_str!("../../templates/gemm/epilogue.cuh.tera")),
    ("gemm/finish.cuh", include_str!("../../templates/gemm/finish.cuh.tera")),
    ("gemm/layout.cuh", include_str!("../../templates/gemm/layout.cuh.tera")),
    ("gemm/leave.cuh", include_str!("../../templates/gemm/leave.cuh.tera")),
    ("gemm/operand.cuh", include_str!("../../templates/gemm/operand.cuh.tera")),
    ("gemm/order.cuh", include_str!("../../templates/gemm/order.cuh.tera")),
    ("gemm/partials.cuh", include_str!("../../templates/gemm/partials.cuh.tera")),
    ("gemm/problem.cuh", include_str!("../../templates/gemm/problem.cuh.tera")),
    ("gemm/sm75_gemm_join.cu", include_str!("../../templates/gemm/sm75_gemm_join.cu.tera")),
    ("gemm/sm75_gemm_simt.cu", include_str!("../../templates/gemm/sm75_gemm_simt.cu.tera")),
    ("gemm/sm75_gemm_sum.cu", include_str!("../../templates/gemm/sm75_gemm_sum.cu.tera")),
    ("gemm/sm80_gemm_mma.cu", include_str!("../../templates/gemm/sm80_gemm_mma.cu.tera")),
    ("gemm/sm90_gemm_wgmma.cu", include_str!("../../templates/gemm/sm90_gemm_wgmma.cu.tera")),
    ("gemm/sm90_operand.cuh", include_str!("../../templates/gemm/sm90_operand.cuh.tera")),
    ("gemm/sm90_store_bulk.cuh", include_str!("../../templates/gemm/sm90_store_bulk.cuh.tera")),
    ("gemm/sm90_store_staged.cuh", include_str!("../../templates/gemm/sm90_store_staged.cuh.tera")),
    ("gemm/tiles.cuh", include_str!("../../templates/gemm/tiles.cuh.tera")),
    (
        "pointwise/sm75_pointwise.cu",
        include_str!("../../templates/pointwise/sm75_pointwise.cu.tera"),
    ),
    (
        "pointwise/sm75_pointwise_general.cu",
        include_str!("../../templates/pointwise/sm75_pointwise_general.cu.tera"),
    ),
    ("reduction/joined.cuh", include_str!("../../templates/reduction/joined.cuh.tera")),
    ("reduction/problem.cuh", include_str!("../../templates/reduction/problem.cuh.tera")),
    (
        "reduction/sm75_reduction_columns.cu",
        include_str!("../../templates/reduction/sm75_reduction_columns.cu.tera"),
    ),
    (
        "reduction/sm75_reduction_kept.cu",
        include_str!("../../templates/reduction/sm75_reduction_kept.cu.tera"),
    ),
    (
        "reduction/sm75_reduction_read.cu",
        include_str!("../../templates/reduction/sm75_reduction_read.cu.tera"),
    ),
    (
        "reduction/sm75_reduction_sums.cu",
        include_str!("../../templates/reduction/sm75_reduction_sums.cu.tera"),
    ),
    ("reduction/stored.cuh", include_str!("../../templates/reduction/stored.cuh.tera")),
    ("reduction/values.cuh", include_str!("../../templates/reduction/values.cuh.tera")),
    ("rnn/exchange.cuh", include_str!("../../templates/rnn/exchange.cuh.tera")),
    ("rnn/gather.cuh", include_str!("../../templates/rnn/gather.cuh.tera")),
    ("rnn/layer.cuh", include_str!("../../templates/rnn/layer.cuh.tera")),
    ("rnn/moments.cuh", include_str!("../../templates/rnn/moments.cuh.tera")),
    ("rnn/place.cuh", include_str!("../../templates/rnn/place.cuh.tera")),
    ("rnn/problem.cuh", include_str!("../../templates/rnn/problem.cuh.tera")),
    ("rnn/rows.cuh", include_str!("../../templates/rnn/rows.cuh.tera")),
    ("rnn/sm75_rnn_cell.cu", include_str!("../../templates/rnn/sm75_rnn_cell.cu.tera")),
    ("rnn/sm75_rnn_simt.cu", include_str!("../../templates/rnn/sm75_rnn_simt.cu.tera")),
    ("rnn/sm75_rnn_start_simt.cu", include_str!("../../templates/rnn/sm75_rnn_start_simt.cu.tera")),
    ("rnn/sm80_rnn_mma.cu", include_str!("../../templates/rnn/sm80_rnn_mma.cu.tera")),
    ("rnn/sm80_rnn_start_mma.cu", include_str!("../../templates/rnn/sm80_rnn_start_mma.cu.tera")),
    ("rnn/start.cuh", include_str!("../../templates/rnn/start.cuh.tera")),
    ("rnn/tensors.cuh", include_str!("../../templates/rnn/tensors.cuh.tera")),
    ("rnn/unit.cuh", include_str!("../../templates/rnn/unit.cuh.tera")),
    ("rnn/weights.cuh", include_str!("../../templates/rnn/weights.cuh.tera")),
    ("rnn/weights_mma.cuh", include_str!("../../templates/rnn/weights_mma.cuh.tera")),
    ("rnn/weights_simt.cuh", include_str!("../../templates/rnn/weights_simt.cuh.tera")),
];

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

/// A parsed set of templates; clones share it.
#[derive(Debug, Clone)]
pub struct Templates {
    tera: Arc<Tera>,
}

impl Templates {
    /// The templates embedded in the library.
    pub fn embedded() -> &'static Templates {
        static TEMPLATES: OnceLock<Templates> = OnceLock::new();
        TEMPLATES.get_or_init(|| {
            let texts = EMBEDDED.iter().map(|(name, text)| ((*name).to_owned(), *text));
            Templates::parse(texts).expect("embedded templates are tested")
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
        Templates::parse(texts.into_iter())
    }

    fn parse<T: AsRef<str>>(texts: impl Iterator<Item = (String, T)>) -> Result<Templates> {
        let mut tera = Tera::new();
        tera.autoescape_on(Vec::<String>::new());
        tera.register_filter("comment", comment);
        tera.add_raw_templates(texts)
            .map_err(|error| Error::compile(format!("failed to parse templates: {error}")))?;
        Ok(Templates { tera: Arc::new(tera) })
    }

    /// Replaces the text of one template, by path without `.tera`.
    #[cfg(test)]
    pub(crate) fn with(&self, name: &str, text: &str) -> Templates {
        let mut tera = Tera::clone(&self.tera);
        tera.add_raw_template(name, text).expect("the text parses");
        Templates { tera: Arc::new(tera) }
    }

    /// Renders a spec.
    ///
    /// # Errors
    /// `Compile` when the template is missing or refers to an undefined variable, `Internal` when
    /// the kernel's name or stem is not a word.
    pub fn render(&self, spec: &KernelSpec) -> Result<KernelSource> {
        if let Some(name) = [spec.entry, &spec.stem].into_iter().find(|name| !is_word(name)) {
            let name = escaped(name);
            return Err(Error::internal(format!("failed to name a kernel `{name}`: not a word")));
        }
        let failed = |error: tera::Error| {
            Error::compile(format!("failed to render template `{}`: {error}", spec.template))
        };
        let context = Context::from_serialize(&spec.parameters).map_err(failed)?;
        let text = self.tera.render(spec.template, &context).map_err(failed)?;
        Ok(KernelSource {
            stem: spec.stem.clone(),
            entry: spec.entry.to_owned(),
            arch: spec.arch,
            text: tidy(&link::linked(&text, spec.arch.capability)),
        })
    }
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

fn collect(root: &Path, dir: &Path, texts: &mut Vec<(String, String)>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, texts)?;
        } else if path.extension().is_some_and(|extension| extension == "tera") {
            let relative = path.strip_prefix(root).expect("walked from the root");
            let name = relative.with_extension("").to_string_lossy().into_owned();
            texts.push((name, std::fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_list_is_the_folder() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        let mut found = Vec::new();
        collect(&root, &root, &mut found).expect("readable");
        found.sort();
        let embedded: Vec<(String, String)> =
            EMBEDDED.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
        let names = |of: &[(String, String)]| of.iter().map(|(name, _)| name.clone()).collect();
        let [in_folder, in_list]: [Vec<String>; 2] = [names(&found), names(&embedded)];
        assert_eq!(in_folder, in_list);
        assert!(found == embedded, "a text differs: build again");
    }
}
