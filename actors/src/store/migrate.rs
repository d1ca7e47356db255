//! Schema migrations, the part that is the same for every backend: what is known, what a database says it has, what follows.
//!
//! Migrations are numbered SQL files under `migrations/<backend>`, compiled in. A backend locks its database, reads the table
//! `schema_migrations`, asks [`plan`] what is missing, runs that and records it, all in one transaction; `relay serve` does so at
//! start, `relay migrate` on request. An applied file is never edited: its checksum is recorded and compared at each start.

use sha2::{Digest, Sha256};
use std::fmt::{self, Write};

/// One numbered SQL file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Place in the order, from 1 without gaps.
    pub version: u32,
    /// What it is about; the file is `NNNN_name.sql`.
    pub name: &'static str,
    /// The statements.
    pub sql: &'static str,
}

impl Migration {
    /// SHA-256 of the file in lower-case hexadecimal digits.
    pub fn checksum(&self) -> String {
        Sha256::digest(self.sql.as_bytes()).iter().fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// `NNNN_name`, as the file is called.
impl fmt::Display for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}_{}", self.version, self.name)
    }
}

/// One row of `schema_migrations`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its number.
    pub version: u32,
    /// Its name when it was applied.
    pub name: String,
    /// Its checksum when it was applied.
    pub checksum: String,
}

/// What a migration run found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationReport {
    /// Applied by an earlier run, in order.
    pub present: Vec<Migration>,
    /// Applied by this run, in order.
    pub applied: Vec<Migration>,
}

/// Why a database was not migrated, and so not opened. The text tells an operator what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrateError {
    /// The database has a migration that this binary does not know.
    NewerDatabase {
        /// Highest number recorded there.
        database: u32,
        /// Highest number known here.
        binary: u32,
    },
    /// A migration was applied from a file with other content.
    Changed {
        /// `NNNN_name` of this binary's file.
        migration: String,
    },
    /// A later migration is recorded, this one is not.
    Missing {
        /// `NNNN_name` of this binary's file.
        migration: String,
    },
    /// The storage failed; nothing was changed.
    Failed(String),
}

impl fmt::Display for MigrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MigrateError::NewerDatabase { database, binary } => write!(
                f,
                "the database is at migration {database:04}, this relay knows only up to {binary:04}: a newer relay has used it. \
                 Start that version or a later one, or restore a backup from before the upgrade"
            ),
            MigrateError::Changed { migration } => write!(
                f,
                "migration {migration} was applied with other content than this relay's file has (checksums differ). Run the release that \
                 migrated this database, or restore the file; a change of the schema goes into a new migration"
            ),
            MigrateError::Missing { migration } => write!(
                f,
                "the database records a later migration but not {migration}: its table schema_migrations was edited or half restored. \
                 Restore a whole backup"
            ),
            MigrateError::Failed(cause) => write!(f, "the database could not be migrated, and is as it was before: {cause}"),
        }
    }
}

impl std::error::Error for MigrateError {}

/// Splits `known` into what the database has and what it lacks.
///
/// # Errors
/// [`MigrateError::NewerDatabase`], [`MigrateError::Changed`] or [`MigrateError::Missing`]; then nothing may be applied.
pub fn plan(known: &[Migration], recorded: &[Recorded]) -> Result<MigrationReport, MigrateError> {
    let binary = known.last().map_or(0, |last| last.version);
    let database = recorded.iter().map(|row| row.version).max().unwrap_or(0);
    if database > binary {
        return Err(MigrateError::NewerDatabase { database, binary });
    }
    let mut report = MigrationReport::default();
    for migration in known {
        match recorded.iter().find(|row| row.version == migration.version) {
            Some(row) if row.checksum != migration.checksum() => {
                return Err(MigrateError::Changed { migration: migration.to_string() });
            }
            Some(_same) => report.present.push(*migration),
            None if migration.version < database => return Err(MigrateError::Missing { migration: migration.to_string() }),
            None => report.applied.push(*migration),
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Migration = Migration { version: 1, name: "one", sql: "abc" };
    const TWO: Migration = Migration { version: 2, name: "two", sql: "CREATE TABLE two (x)" };

    fn row(migration: Migration) -> Recorded {
        Recorded { version: migration.version, name: migration.name.to_string(), checksum: migration.checksum() }
    }

    #[test]
    fn checksum_is_sha_256_in_hexadecimal() {
        // The test vector "abc" of FIPS 180-2, appendix B.1.
        assert_eq!(ONE.checksum(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn what_is_missing_is_planned_in_order() {
        let report =
            |present: &[Migration], applied: &[Migration]| Ok(MigrationReport { present: present.to_vec(), applied: applied.to_vec() });
        assert_eq!(plan(&[ONE, TWO], &[]), report(&[], &[ONE, TWO]));
        assert_eq!(plan(&[ONE, TWO], &[row(ONE)]), report(&[ONE], &[TWO]));
        assert_eq!(plan(&[ONE, TWO], &[row(TWO), row(ONE)]), report(&[ONE, TWO], &[]));
    }

    #[test]
    fn a_database_that_does_not_fit_is_refused() {
        assert_eq!(plan(&[ONE], &[row(ONE), row(TWO)]), Err(MigrateError::NewerDatabase { database: 2, binary: 1 }));
        let edited = Recorded { checksum: TWO.checksum(), ..row(ONE) };
        assert_eq!(plan(&[ONE, TWO], &[edited]), Err(MigrateError::Changed { migration: "0001_one".into() }));
        assert_eq!(plan(&[ONE, TWO], &[row(TWO)]), Err(MigrateError::Missing { migration: "0001_one".into() }));
    }
}
