//! Names of keys of AWS KMS.

use std::fmt;
use std::str::FromStr;

/// `arn:<partition>:kms:<region>:<account>:key/<id>`, which names one key for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyArn {
    text: String,
    region: String,
}

/// The text is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoKeyArn;

impl KeyArn {
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn region(&self) -> &str {
        &self.region
    }
}

impl fmt::Display for KeyArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for KeyArn {
    type Err = NoKeyArn;

    fn from_str(text: &str) -> Result<Self, NoKeyArn> {
        let (region, resource) = region_and_resource(text).ok_or(NoKeyArn)?;
        let id = resource.strip_prefix("key/").ok_or(NoKeyArn)?;
        if !is_word(id) {
            return Err(NoKeyArn);
        }
        Ok(Self { text: text.to_owned(), region: region.to_owned() })
    }
}

/// The region that the ARN of a key or an alias names.
pub(super) fn region_of(text: &str) -> Option<&str> {
    region_and_resource(text).map(|(region, _)| region)
}

/// Whether it names a key by an alias, which can be given to another one.
pub(super) fn is_alias(text: &str) -> bool {
    text.starts_with("alias/") || region_and_resource(text).is_some_and(|(_, resource)| resource.starts_with("alias/"))
}

fn region_and_resource(text: &str) -> Option<(&str, &str)> {
    let mut parts = text.splitn(6, ':');
    let mut next = || parts.next();
    let (arn, partition, service) = (next()?, next()?, next()?);
    let (region, account, resource) = (next()?, next()?, next()?);
    let right = arn == "arn" && partition.starts_with("aws") && service == "kms" && text.len() <= 512;
    (right && is_word(region) && is_word(account)).then_some((region, resource))
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ARN: &str = "arn:aws-cn:kms:cn-north-1:111122223333:key/mrk-1234abcd12ab34cd56ef1234567890ab";

    #[test]
    fn an_arn_names_a_key_and_its_region() {
        let arn: KeyArn = ARN.parse().expect("it is one");
        assert_eq!((arn.as_str(), arn.region()), (ARN, "cn-north-1"));
    }

    #[test]
    fn what_can_name_another_key_later_is_no_key_arn() {
        let none = [
            "",
            "1234abcd",
            "alias/kek",
            "arn:aws:kms:eu-central-1:111122223333:alias/kek",
            "arn:aws:kms:eu-central-1:111122223333:key/",
            "arn:aws:kms:eu-central-1:111122223333:key/a/b",
            "arn:aws:kms::111122223333:key/a",
            "arn:aws:s3:eu-central-1:111122223333:key/a",
            "arn:other:kms:eu-central-1:111122223333:key/a",
            "arn:aws:kms:eu-central-1:111122223333:key/a:b",
        ];
        for text in none {
            assert_eq!(text.parse::<KeyArn>(), Err(NoKeyArn), "{text}");
        }
    }

    #[test]
    fn an_alias_is_known_by_its_name_and_by_its_arn() {
        assert!(is_alias("alias/kek"));
        assert!(is_alias("arn:aws:kms:eu-central-1:111122223333:alias/kek"));
        assert!(!is_alias(ARN) && !is_alias("1234abcd"));
        assert_eq!(region_of("arn:aws:kms:eu-central-1:111122223333:alias/kek"), Some("eu-central-1"));
        assert_eq!(region_of("alias/kek"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_a_key_arn_of_one_region_or_none(text in "arn:aws[a-z-]{0,3}:kms:[a-z0-9:-]{0,12}:[0-9]{0,3}:?(key/|alias/)?[a-z0-9/:-]{0,9}") {
            if let Ok(arn) = text.parse::<KeyArn>() {
                prop_assert_eq!(arn.as_str(), &text);
                prop_assert_eq!(region_of(&text), Some(arn.region()));
                prop_assert!(!is_alias(&text));
            }
        }
    }
}
