//! From a kernel spec to CUDA C++ text.
//!
//! Templates are embedded in the library; a folder can stand in for them. This module knows
//! nothing of graphs or devices: it renders what the spec names.

mod items;
mod link;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use tera::{Context, Kwargs, State, Tera, Value};

use crate::error::{Error, Result};
use crate::escape::{escaped, is_word};
use crate::kernel::KernelSpec;
use crate::target::Arch;

/// Every template below `templates/`, by its path without `.tera`.
const EMBEDDED: &[(&str, &str)] = &[
    (
        "attention/combine_splits.cuh",
        include_str!("../../templates/attention/combine_splits.cuh.tera"),
    ),
    ("attention/mask_range.cuh", include_str!("../../templates/attention/mask_range.cuh.tera")),
    (
        "attention/online_softmax.cuh",
        include_str!("../../templates/attention/online_softmax.cuh.tera"),
    ),
    ("attention/partial.cuh", include_str!("../../templates/attention/partial.cuh.tera")),
    ("attention/problem.cuh", include_str!("../../templates/attention/problem.cuh.tera")),
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
    ("device/ops/welford.cuh", include_str!("../../templates/device/ops/welford.cuh.tera")),
    ("device/ptx/address.cuh", include_str!("../../templates/device/ptx/address.cuh.tera")),
    ("device/ptx/bit_test.cuh", include_str!("../../templates/device/ptx/bit_test.cuh.tera")),
    ("device/ptx/cluster.cuh", include_str!("../../templates/device/ptx/cluster.cuh.tera")),
    ("device/ptx/convert.cuh", include_str!("../../templates/device/ptx/convert.cuh.tera")),
    ("device/ptx/counter.cuh", include_str!("../../templates/device/ptx/counter.cuh.tera")),
    ("device/ptx/cp_async.cuh", include_str!("../../templates/device/ptx/cp_async.cuh.tera")),
    ("device/ptx/exp2.cuh", include_str!("../../templates/device/ptx/exp2.cuh.tera")),
    ("device/ptx/fp8.cuh", include_str!("../../templates/device/ptx/fp8.cuh.tera")),
    ("device/ptx/global.cuh", include_str!("../../templates/device/ptx/global.cuh.tera")),
    ("device/ptx/ll_words.cuh", include_str!("../../templates/device/ptx/ll_words.cuh.tera")),
    ("device/ptx/mapa.cuh", include_str!("../../templates/device/ptx/mapa.cuh.tera")),
    ("device/ptx/mbarrier.cuh", include_str!("../../templates/device/ptx/mbarrier.cuh.tera")),
    ("device/ptx/minmax_nan.cuh", include_str!("../../templates/device/ptx/minmax_nan.cuh.tera")),
    ("device/ptx/mma.cuh", include_str!("../../templates/device/ptx/mma.cuh.tera")),
    ("device/ptx/opaque.cuh", include_str!("../../templates/device/ptx/opaque.cuh.tera")),
    ("device/ptx/proxy_fence.cuh", include_str!("../../templates/device/ptx/proxy_fence.cuh.tera")),
    ("device/ptx/reciprocal.cuh", include_str!("../../templates/device/ptx/reciprocal.cuh.tera")),
    ("device/ptx/setmaxnreg.cuh", include_str!("../../templates/device/ptx/setmaxnreg.cuh.tera")),
    (
        "device/ptx/spin_timeout.cuh",
        include_str!("../../templates/device/ptx/spin_timeout.cuh.tera"),
    ),
    ("device/ptx/st_shared.cuh", include_str!("../../templates/device/ptx/st_shared.cuh.tera")),
    ("device/ptx/stmatrix.cuh", include_str!("../../templates/device/ptx/stmatrix.cuh.tera")),
    (
        "device/ptx/sync_cluster.cuh",
        include_str!("../../templates/device/ptx/sync_cluster.cuh.tera"),
    ),
    ("device/ptx/tma.cuh", include_str!("../../templates/device/ptx/tma.cuh.tera")),
    ("device/ptx/wgmma.cuh", include_str!("../../templates/device/ptx/wgmma.cuh.tera")),
    ("device/tile/chunks.cuh", include_str!("../../templates/device/tile/chunks.cuh.tera")),
    ("device/tile/fp8_tile.cuh", include_str!("../../templates/device/tile/fp8_tile.cuh.tera")),
    ("device/tile/fragment.cuh", include_str!("../../templates/device/tile/fragment.cuh.tera")),
    ("device/tile/mn_major.cuh", include_str!("../../templates/device/tile/mn_major.cuh.tera")),
    (
        "device/tile/quad_transpose.cuh",
        include_str!("../../templates/device/tile/quad_transpose.cuh.tera"),
    ),
    (
        "device/tile/register_tile.cuh",
        include_str!("../../templates/device/tile/register_tile.cuh.tera"),
    ),
    ("device/tile/staging.cuh", include_str!("../../templates/device/tile/staging.cuh.tera")),
    ("device/tile/swizzled.cuh", include_str!("../../templates/device/tile/swizzled.cuh.tera")),
    (
        "device/tile/tma_store_tile.cuh",
        include_str!("../../templates/device/tile/tma_store_tile.cuh.tera"),
    ),
    ("device/tile/wgmma_tile.cuh", include_str!("../../templates/device/tile/wgmma_tile.cuh.tera")),
    ("device/tile/words.cuh", include_str!("../../templates/device/tile/words.cuh.tera")),
    ("device/types.cuh", include_str!("../../templates/device/types.cuh.tera")),
    ("gemm/epilogue.cuh", include_str!("../../templates/gemm/epilogue.cuh.tera")),
    ("gemm/layout.cuh", include_str!("../../templates/gemm/layout.cuh.tera")),
    ("gemm/operand.cuh", include_str!("../../templates/gemm/operand.cuh.tera")),
    ("gemm/partials.cuh", include_str!("../../templates/gemm/partials.cuh.tera")),
    ("gemm/problem.cuh", include_str!("../../templates/gemm/problem.cuh.tera")),
    ("gemm/rasterize.cuh", include_str!("../../templates/gemm/rasterize.cuh.tera")),
    ("gemm/sm75_gemm_join.cu", include_str!("../../templates/gemm/sm75_gemm_join.cu.tera")),
    ("gemm/sm75_gemm_simt.cu", include_str!("../../templates/gemm/sm75_gemm_simt.cu.tera")),
    ("gemm/sm75_gemm_sum.cu", include_str!("../../templates/gemm/sm75_gemm_sum.cu.tera")),
    ("gemm/sm80_gemm_mma.cu", include_str!("../../templates/gemm/sm80_gemm_mma.cu.tera")),
    ("gemm/sm90_gemm_wgmma.cu", include_str!("../../templates/gemm/sm90_gemm_wgmma.cu.tera")),
    ("gemm/sm90_operand.cuh", include_str!("../../templates/gemm/sm90_operand.cuh.tera")),
    ("gemm/sm90_store_bulk.cuh", include_str!("../../templates/gemm/sm90_store_bulk.cuh.tera")),
    ("gemm/sm90_store_staged.cuh", include_str!("../../templates/gemm/sm90_store_staged.cuh.tera")),
    ("gemm/store_epilogue.cuh", include_str!("../../templates/gemm/store_epilogue.cuh.tera")),
    ("gemm/store_partials.cuh", include_str!("../../templates/gemm/store_partials.cuh.tera")),
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
    ("rnn/coords.cuh", include_str!("../../templates/rnn/coords.cuh.tera")),
    ("rnn/exchange.cuh", include_str!("../../templates/rnn/exchange.cuh.tera")),
    ("rnn/gather_gates.cuh", include_str!("../../templates/rnn/gather_gates.cuh.tera")),
    ("rnn/layer.cuh", include_str!("../../templates/rnn/layer.cuh.tera")),
    ("rnn/layer_norm.cuh", include_str!("../../templates/rnn/layer_norm.cuh.tera")),
    ("rnn/prepack.cuh", include_str!("../../templates/rnn/prepack.cuh.tera")),
    ("rnn/problem.cuh", include_str!("../../templates/rnn/problem.cuh.tera")),
    ("rnn/row_index.cuh", include_str!("../../templates/rnn/row_index.cuh.tera")),
    ("rnn/sm75_rnn_cell.cu", include_str!("../../templates/rnn/sm75_rnn_cell.cu.tera")),
    ("rnn/sm75_rnn_simt.cu", include_str!("../../templates/rnn/sm75_rnn_simt.cu.tera")),
    ("rnn/sm75_rnn_start_simt.cu", include_str!("../../templates/rnn/sm75_rnn_start_simt.cu.tera")),
    ("rnn/sm80_rnn_mma.cu", include_str!("../../templates/rnn/sm80_rnn_mma.cu.tera")),
    ("rnn/sm80_rnn_start_mma.cu", include_str!("../../templates/rnn/sm80_rnn_start_mma.cu.tera")),
    ("rnn/tensors.cuh", include_str!("../../templates/rnn/tensors.cuh.tera")),
    ("rnn/unit.cuh", include_str!("../../templates/rnn/unit.cuh.tera")),
    ("rnn/weights.cuh", include_str!("../../templates/rnn/weights.cuh.tera")),
    ("rnn/weights_mma.cuh", include_str!("../../templates/rnn/weights_mma.cuh.tera")),
    ("rnn/weights_simt.cuh", include_str!("../../templates/rnn/weights_simt.cuh.tera")),
];

/// Readable CUDA C++, complete in itself: it includes no header.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KernelSource {
    /// The spec's stem.
    pub stem: String,
    /// The kernel's name.
    pub entry: String,
    /// What it must be compiled for.
    pub arch: Arch,
    /// The text.
    pub text: String,
}

impl KernelSource {
    /// Identifies the source within a process, whatever compiles it.
    pub fn digest(&self) -> [u8; 32] {
        let arch = self.arch.to_string();
        *blake3::Hasher::new()
            .update(arch.as_bytes())
            .update(self.text.as_bytes())
            .finalize()
            .as_bytes()
    }
}

/// A set of templates, parsed. Clones share it.
#[derive(Debug, Clone)]
pub struct Templates {
    tera: Arc<Tera>,
}

impl Templates {
    /// The templates built into the library.
    pub fn embedded() -> &'static Templates {
        static TEMPLATES: OnceLock<Templates> = OnceLock::new();
        TEMPLATES.get_or_init(|| {
            let texts = EMBEDDED.iter().map(|(name, text)| ((*name).to_owned(), *text));
            Templates::parse(texts).expect("embedded templates are tested")
        })
    }

    /// The templates of a folder laid out as `templates/` in the repository.
    ///
    /// # Errors
    /// `Compile` when the folder can not be read or a template does not parse.
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

    /// The same templates with another text for one, by its path without `.tera`.
    #[cfg(test)]
    pub(crate) fn with(&self, name: &str, text: &str) -> Templates {
        let mut tera = Tera::clone(&self.tera);
        tera.add_raw_template(name, text).expect("the text parses");
        Templates { tera: Arc::new(tera) }
    }

    /// Renders a spec.
    ///
    /// # Errors
    /// `Compile` when the template is missing or refers to an unknown variable, `Internal` when
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

/// The filter `comment`: what a template writes into a comment can not end it.
fn comment(value: Value, _: Kwargs, _: &State<'_>) -> Value {
    match value.as_str() {
        Some(text) => Value::from(escaped(text)),
        None => value,
    }
}

/// Drops trailing blanks and repeated empty lines, which template tags leave behind.
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
