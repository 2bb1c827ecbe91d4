use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::Options;
use super::markers::Marked;
use crate::report::{EtcdKey, ResidueExample, ResidueGroup, ResiduePlace, ResidueReport, key_id_hash, place_of};
use crate::resource::{GroupResource, ResourceRef};
use crate::transformer::{Header, ProviderKind};

/// What groups values: place, resource, key and KMS key ID.
type GroupKey = (ResiduePlace, String, String, Option<String>);

#[derive(Default)]
struct Counts {
    values: u64,
    bytes: u64,
    copies: u64,
    unwanted: bool,
    examples: usize,
}

/// Counts what is found.
pub(super) struct Census<'a> {
    options: &'a Options<'a>,
    file: String,
    groups: BTreeMap<GroupKey, Counts>,
    examples: Vec<ResidueExample>,
}

/// So many examples of each group are shown.
const EXAMPLES: usize = 3;
/// What is hashed of bytes whose end is not known.
const EXCERPT: usize = 64;

impl<'a> Census<'a> {
    pub(super) fn new(options: &'a Options<'a>) -> Self {
        Self { options, file: String::new(), groups: BTreeMap::new(), examples: Vec::new() }
    }

    /// What follows is of this file.
    pub(super) fn file(&mut self, name: &str) {
        name.clone_into(&mut self.file);
    }

    /// A value whose key is known.
    pub(super) fn value(&mut self, place: ResiduePlace, key: &[u8], value: &[u8], offset: u64, is_copy: bool) {
        if value.is_empty() {
            return;
        }
        let location = self.options.layout.locate(key);
        let list = location
            .resource()
            .zip(self.options.transformers)
            .map(|(resource, transformers)| transformers.transformer_for_resource(resource.group, resource.resource));
        let header = list.map_or_else(|| Header::parse(value), |list| list.header(value));
        let unwanted = location.resource().is_some_and(|resource| self.is_unwanted(resource, &header));
        let example = ResidueExample {
            place,
            file: self.file.clone(),
            offset,
            key: Some(EtcdKey::new(key).to_string()),
            under: header.label_in_words(),
            bytes: value.len() as u64,
            sha256: String::new(),
        };
        self.add(place_of(&location), &header, value, is_copy, unwanted, example);
    }

    /// Bytes that begin as a value does.
    pub(super) fn marked(&mut self, place: ResiduePlace, marked: &Marked<'_>) {
        let resource = marked.resource.as_ref();
        let unwanted = match resource {
            Some(resource) => self.is_unwanted(ResourceRef::from(resource), &marked.header),
            // Ciphertext does not tell of what; it is old where its key writes nothing.
            None => !matches!(marked.header, Header::Plaintext) && self.writes_nothing(&marked.header),
        };
        let excerpt = marked.bytes.get(..EXCERPT).unwrap_or(marked.bytes);
        let example = ResidueExample {
            place,
            file: self.file.clone(),
            offset: marked.offset,
            key: None,
            under: marked.header.label_in_words(),
            bytes: excerpt.len() as u64,
            sha256: String::new(),
        };
        let resource = resource.map_or_else(|| "(unknown)".to_owned(), GroupResource::to_string);
        self.add(resource, &marked.header, excerpt, false, unwanted, example);
    }

    fn add(
        &mut self,
        resource: String,
        header: &Header<'_>,
        bytes: &[u8],
        is_copy: bool,
        unwanted: bool,
        example: ResidueExample,
    ) {
        let key = (example.place, resource, header.label_in_words(), header.kms_key_id().map(key_id_hash));
        let counts = self.groups.entry(key).or_default();
        counts.values += 1;
        counts.bytes += bytes.len() as u64;
        counts.copies += u64::from(is_copy);
        counts.unwanted |= unwanted;
        if unwanted && counts.examples < EXAMPLES {
            counts.examples += 1;
            self.examples.push(ResidueExample { sha256: hex::encode(Sha256::digest(bytes)), ..example });
        }
    }

    fn is_unwanted(&self, resource: ResourceRef<'_>, header: &Header<'_>) -> bool {
        let is_plain = matches!(header, Header::Plaintext);
        let Some(transformers) = self.options.transformers else {
            return is_plain && resource == ResourceRef::new("", "secrets");
        };
        let list = transformers.transformer_for_resource(resource.group, resource.resource);
        let write_key = list.write_key();
        if write_key.provider == ProviderKind::Identity {
            return false;
        }
        is_plain || header.label().is_some_and(|label| label != write_key)
    }

    /// Whether no list writes by the key that a header names.
    fn writes_nothing(&self, header: &Header<'_>) -> bool {
        let Some(transformers) = self.options.transformers else { return false };
        header.label().is_some_and(|label| !transformers.lists().any(|(_, list)| list.write_key() == label))
    }

    pub(super) fn finish(self, report: &mut ResidueReport) {
        let group = |((place, resource, key, kms_key_id_hash), counts): (GroupKey, Counts)| {
            let Counts { values, bytes, copies, unwanted, .. } = counts;
            ResidueGroup { place, resource, key, kms_key_id_hash, values, bytes, copies, unwanted }
        };
        report.groups = self.groups.into_iter().map(group).collect();
        let unwanted = || report.groups.iter().filter(|group| group.unwanted);
        report.unwanted = unwanted().map(|group| group.values).sum();
        let is_in = |of: &dyn Fn(ResiduePlace) -> bool| unwanted().any(|group| of(group.place));
        let mut steps = Vec::new();
        let mut step = |needed: bool, text: &str| {
            if needed {
                steps.push(text.to_owned());
            }
        };
        let is_live = is_in(&|place| place == ResiduePlace::Live);
        let is_history = is_live || is_in(&|place| place == ResiduePlace::History);
        let is_free = is_history
            || is_in(&|place| {
                matches!(place, ResiduePlace::FreePages | ResiduePlace::PageSlack | ResiduePlace::FileTail)
            });
        let is_log = is_in(&|place| place.is_wal() || place == ResiduePlace::RaftSnapshot);
        let is_file = is_in(&|place| place == ResiduePlace::LeftFile);
        step(is_live, "rotate: `atrest rekey --yes`, so that every live value is under the key that writes");
        step(
            is_history,
            "compact at the last revision (kube-apiserver does it every five minutes): `etcdctl compact REVISION`",
        );
        step(is_free, "defragment every member, one after the other: `etcdctl defrag`");
        step(is_free, "save a new snapshot, and look through it with this command");
        step(
            is_log || (self.options.data_dir.is_some() && is_free),
            "replace the write-ahead log: restore a clean snapshot into a new data directory, or replace the members one by one",
        );
        step(is_file, "delete the files that are left over, when etcd does not need them any more");
        step(
            !report.groups.is_empty() && report.unwanted > 0,
            "destroy old backups and old data directories: deleting leaves the blocks on the disk",
        );
        if self.options.data_dir.is_none() && report.unwanted > 0 {
            steps.insert(
                0,
                "this file: `atrest snapshot rekey` writes a new one that holds nothing of it; the cluster itself takes the following"
                    .to_owned(),
            );
        }
        report.clean_up = steps;
        report.examples = self.examples;
    }
}
