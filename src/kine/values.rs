use std::sync::Arc;

use super::walk::Walk;
use super::{Error, Kine, Problems, schema};
use crate::source::{Page, Source, StoredValue};

/// What to read of a database.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The revision; the last when there is none.
    pub revision: Option<i64>,
    /// Every value that is still in the table, also those that were overwritten or deleted.
    pub history: bool,
    /// Only keys that begin with one of these, when there are some.
    pub prefixes: Vec<Vec<u8>>,
}

/// The values of a database, as a source: in the order of their keys, those of one key oldest first.
///
/// Each page is a transaction of its own, so that no lock is held while the values are looked at. A row is never
/// changed once it is written, and so the pages agree with each other, unless kine compacts past their revision in
/// between: then reading goes on at the last revision, as it does with etcd, or ends with [`Error::Compacted`] if the
/// revision was asked for.
///
/// Of the history there is each row's value, the copy in the row that notes a deletion among them, and each `old_value`
/// that is not also the value of the row that it came from. Such a value has the revision of that row and no lease, and
/// where the row does not tell it, 0 for the revision of its creation.
#[derive(Debug)]
pub struct Values {
    kine: Arc<Kine>,
    view: View,
    walk: Walk,
    revision: i64,
    compacted: i64,
    moved_on: bool,
    expected: Option<u64>,
    problems: Problems,
}

impl Values {
    /// Finds out what a view is of. The values are read when they are asked for.
    ///
    /// # Errors
    ///
    /// When the database cannot be read, or the revision is not in it.
    pub fn new(kine: &Arc<Kine>, view: &View) -> Result<Self, Error> {
        let walk = Walk::new(&view.prefixes, view.history);
        let (head, compacted) =
            kine.read(|connection| Ok((schema::head(connection)?, schema::compacted(connection)?)))?;
        if let Some(asked) = view.revision {
            if asked < compacted {
                return Err(Error::Compacted { asked, compacted });
            }
            if asked > head {
                return Err(Error::FutureRevision { asked, head });
            }
        }
        let revision = view.revision.unwrap_or(head);
        let problems = kine.read(|connection| schema::unreachable(connection, revision))?;
        let expected = kine.read(|connection| walk.count(connection, revision))?;
        let (kine, view) = (Arc::clone(kine), view.clone());
        Ok(Self { kine, view, walk, revision, compacted, moved_on: false, expected, problems })
    }

    /// The same values once more, from the first on.
    ///
    /// # Errors
    ///
    /// When the database cannot be read any more, or was compacted.
    pub fn again(&self) -> Result<Self, Error> {
        Self::new(&self.kine, &View { revision: Some(self.revision), ..self.view.clone() })
    }

    /// What could not be read so far.
    #[must_use]
    pub fn problems(&self) -> &Problems {
        &self.problems
    }

    /// The next values.
    ///
    /// # Errors
    ///
    /// When they cannot be read any more. After [`Error::Busy`] they can be asked for again.
    pub fn next_values(&mut self) -> Result<Option<Vec<StoredValue>>, Error> {
        while !self.walk.is_over() {
            let (walk, revision) = (self.walk.clone(), self.revision);
            let (walk, read) = self.kine.read(|connection| {
                let compacted = schema::compacted(connection)?;
                let head = if compacted > revision { schema::head(connection)? } else { revision };
                let mut walk = walk;
                let batch = walk.next(connection, head)?;
                Ok((walk, batch.map(|batch| (batch, compacted, head))))
            })?;
            let (batch, compacted, head) = read?;
            if compacted > revision
                && let Some(asked) = self.view.revision
            {
                return Err(Error::Compacted { asked, compacted });
            }
            self.moved_on |= head != revision || (self.view.history && compacted != self.compacted);
            (self.walk, self.revision) = (walk, head);
            self.problems.append(batch.problems);
            if !batch.values.is_empty() {
                tracing::debug!(values = batch.values.len(), revision = head, "read a page of kine's table");
                return Ok(Some(batch.values));
            }
        }
        Ok(None)
    }
}

impl Source for Values {
    type Error = Error;

    async fn next_page(&mut self) -> Result<Option<Page>, Error> {
        Ok(self.next_values()?.map(|values| Page { values, revision: self.revision }))
    }

    fn expected(&self) -> Option<u64> {
        self.expected
    }

    fn revision(&self) -> Option<i64> {
        Some(self.revision)
    }

    fn is_consistent(&self) -> bool {
        !self.moved_on
    }
}
