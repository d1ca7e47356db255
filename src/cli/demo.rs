//! Ids for the commands that the start-up text shows: an account, a desktop and a phone, made once per data directory so that the
//! same lines work after every start. They are rows like any other, and only those who type the commands create them.

use crate::secrets::{create_private, replace_private};
use relay_protocol::id::{DeviceId, UserId};
use serde::{Deserialize, Serialize};
use std::{io, path::Path};
use uuid::Uuid;

/// File in the data directory.
const FILE: &str = "demo-ids";

/// The ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemoIds {
    /// The account.
    pub user: UserId,
    /// Its desktop.
    pub desktop: DeviceId,
    /// Its phone.
    pub phone: DeviceId,
}

impl DemoIds {
    fn generate() -> Self {
        DemoIds { user: UserId(Uuid::new_v4()), desktop: DeviceId(Uuid::new_v4()), phone: DeviceId(Uuid::new_v4()) }
    }

    /// The ids of this data directory, made now if there are none. A file that is none of ours is replaced.
    ///
    /// # Errors
    /// The system refused.
    pub fn of(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join(FILE);
        let fresh = DemoIds::generate();
        let content = serde_json::to_vec(&fresh)?;
        if create_private(&path, &content)? {
            return Ok(fresh);
        }
        if let Ok(ids) = serde_json::from_slice(&std::fs::read(&path)?) {
            return Ok(ids);
        }
        replace_private(&path, &content)?;
        Ok(fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_the_same_for_a_data_directory() {
        let directory = tempfile::tempdir().unwrap();
        let first = DemoIds::of(directory.path()).unwrap();
        assert_eq!(DemoIds::of(directory.path()).unwrap(), first);
        std::fs::write(directory.path().join(FILE), "{}").unwrap();
        let second = DemoIds::of(directory.path()).unwrap();
        assert_ne!(second, first);
        assert_eq!(DemoIds::of(directory.path()).unwrap(), second);
    }
}
