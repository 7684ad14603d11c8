//! What is known of the folder's files: the last good state of each, and whether it may have changed since.
//!
//! Must never let one file's mistake keep another's change from counting.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{CatalogError, ProjectConfig, files, read_file};

/// The folder's files, by path.
#[derive(Debug)]
pub(super) struct Folder {
    files: BTreeMap<PathBuf, Known>,
    /// The folder itself could not be looked at the last time.
    lost: bool,
}

/// One file.
#[derive(Debug, Default)]
struct Known {
    /// What it said when it could be used last.
    project: Option<Arc<ProjectConfig>>,
    /// As it was looked at before that; `None`: it could not be used since.
    seen: Option<Vec<Stamp>>,
    /// The files that it names.
    beside: Vec<PathBuf>,
    /// What was said of it last, for as long as it cannot be used.
    warned: Option<String>,
}

/// Tells a file from what it was or what was there before: a copy may keep time and size, never the inode's own
/// time. `None` of a file that is not there. Follows links, so that a mounted Kubernetes Secret is seen to change.
type Stamp = Option<[i64; 7]>;

impl Folder {
    /// Reads a folder in which every file can be used.
    pub(super) fn read(folder: &Path) -> Result<Self, CatalogError> {
        let mut known = BTreeMap::new();
        for path in files(folder)? {
            let mut file = Known::default();
            file.read(folder, &path)?;
            known.insert(path, file);
        }
        Ok(Self {
            files: known,
            lost: false,
        })
    }

    /// Reads each file that may have changed, and each that could not be used. Whether a project is another than
    /// before, or came, or went.
    pub(super) fn look_again(&mut self, folder: &Path) -> bool {
        let paths = match files(folder) {
            Ok(paths) => paths,
            Err(error) => {
                if !std::mem::replace(&mut self.lost, true) {
                    tracing::warn!(%error, "projects cannot be looked at, the last good state stays");
                }
                return false;
            }
        };
        self.lost = false;
        let mut changed = false;
        self.files.retain(|path, known| {
            let stays = paths.contains(path);
            changed |= !stays && known.project.is_some();
            stays
        });
        for path in paths {
            let known = self.files.entry(path.clone()).or_default();
            if known.is_as_seen(&path) {
                continue;
            }
            match known.read(folder, &path) {
                Ok(()) => {
                    known.warned = None;
                    changed = true;
                }
                Err(error) => {
                    known.seen = None;
                    let text = error.to_string();
                    if known.warned.as_ref() != Some(&text) {
                        tracing::warn!(
                            error = text,
                            "a project's file cannot be used, its last good state stays"
                        );
                        known.warned = Some(text);
                    }
                }
            }
        }
        changed
    }

    /// The projects.
    pub(super) fn projects(&self) -> impl Iterator<Item = Arc<ProjectConfig>> {
        self.files.values().filter_map(|known| known.project.clone())
    }

    /// The projects, for a catalog that begins with them.
    pub(super) fn projects_owned(&self) -> Vec<ProjectConfig> {
        self.projects()
            .map(|project| ProjectConfig::clone(&project))
            .collect()
    }

    /// How many files cannot be used.
    pub(super) fn unusable(&self) -> usize {
        self.files.values().filter(|known| known.seen.is_none()).count()
    }
}

impl Known {
    /// Reads the file. On an error the last good state stays.
    fn read(&mut self, folder: &Path, path: &Path) -> Result<(), CatalogError> {
        // Before it is read: what changes meanwhile is read the next time.
        let mut seen = vec![stamp(path)];
        let mut beside = Vec::new();
        let project = read_file(folder, path, |named| {
            seen.push(stamp(named));
            beside.push(named.to_owned());
        })?;
        self.seen = Some(seen);
        self.beside = beside;
        self.project = Some(Arc::new(project));
        Ok(())
    }

    fn is_as_seen(&self, path: &Path) -> bool {
        let now = std::iter::once(path)
            .chain(self.beside.iter().map(PathBuf::as_path))
            .map(stamp);
        self.seen
            .as_ref()
            .is_some_and(|seen| now.eq(seen.iter().copied()))
    }
}

fn stamp(path: &Path) -> Stamp {
    let of = std::fs::metadata(path).ok()?;
    let (device, inode, size) = (of.dev() as i64, of.ino() as i64, of.size() as i64);
    Some([
        device,
        inode,
        size,
        of.mtime(),
        of.mtime_nsec(),
        of.ctime(),
        of.ctime_nsec(),
    ])
}
