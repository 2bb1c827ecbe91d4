use std::path::Path;

use atrest::kms::check::{Api, Options, check};
use atrest::transformer::ENCRYPTED_PREFIX;
use atrest::transformer::envelope::DekSource;

use super::{read_file, stdout};
use crate::args::{KmsApi, KmsCheckArgs};
use crate::failure::{FINDINGS, Failure};
use crate::render;

pub(super) async fn run(args: &KmsCheckArgs) -> Result<u8, Failure> {
    let options = Options {
        endpoint: args.endpoint.clone(),
        timeout: args.timeout,
        api: args.api_version.map(|api| match api {
            KmsApi::V1 => Api::V1,
            KmsApi::V2 => Api::V2,
        }),
        samples: args.samples,
        concurrency: args.concurrency,
        stored: args.value.iter().map(|file| stored(file)).collect::<Result<_, _>>()?,
    };
    let report = check(&options).await?;
    render::print(&report, args.output.output, &mut stdout())?;
    Ok(if report.ok { 0 } else { FINDINGS })
}

/// What a value in a file needs of a KMS. etcdctl prints the key in front of it.
fn stored(file: &Path) -> Result<DekSource, Failure> {
    let text = read_file(file)?;
    let begin = text.windows(ENCRYPTED_PREFIX.len()).position(|part| part == ENCRYPTED_PREFIX);
    let value = begin.and_then(|begin| text.get(begin..)).unwrap_or_default();
    DekSource::of_stored(value)
        .ok_or_else(|| Failure::Usage(format!("--value: {} holds no whole value of a KMS", file.display())))
}
