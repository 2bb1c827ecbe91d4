//! What the services behind KMS plugins say.

use super::entry::{Entry, Pattern};
use crate::report::Axis;

const NOT_LOST: &str =
    "nothing is lost: the values open again as soon as the KMS answers; rewrite and delete nothing meanwhile";
const CHECK: &str = "`atrest kms check --endpoint unix:///…` on the control-plane node, once it is mended";

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        id: "kms-key-disabled",
        axis: Axis::Kms,
        patterns: &[
            Pattern::Text("kmsinvalidstateexception"),
            Pattern::Text("is pending deletion"),
            Pattern::Text("disabledexception"),
            Pattern::Text("key_disabled"),
            Pattern::Text("is not enabled, current state is"),
        ],
        in_logs: true,
        vague: false,
        meaning: "The key in the KMS is disabled, or scheduled for deletion: every value whose data key it has sealed cannot be opened. Once it is \
                  deleted for good, they are lost.",
        causes: &[
            "somebody disabled the key, or scheduled its deletion",
            "a clean-up that did not know the key was in use",
        ],
        next: &[
            "at once: cancel the deletion (`aws kms cancel-key-deletion --key-id …`) and enable the key (`aws kms enable-key --key-id …`), or likewise elsewhere",
            "rewrite and delete nothing meanwhile: the values open again once the key is enabled",
            "`atrest verify --removable KEY_ID` before a key is disabled another time",
        ],
    },
    Entry {
        id: "kms-access-denied",
        axis: Axis::Kms,
        patterns: &[
            Pattern::Text("accessdeniedexception"),
            Pattern::Text("is not authorized to perform: kms:"),
            Pattern::All(&["permission denied", "vault"]),
            Pattern::All(&["permission denied", "code: 403"]),
            Pattern::Without(&["rpc error", "permission denied"], &["etcdserver", "dial unix"]),
            Pattern::Text("unrecognizedclientexception"),
            Pattern::Text("expiredtokenexception"),
        ],
        in_logs: true,
        vague: false,
        meaning: "The service behind the KMS plugin refuses the plugin: it may not use the key. The stored value is not looked at, and may be whole.",
        causes: &[
            "the role, the policy of the key, or the policy in Vault was changed",
            "the plugin's credentials or token have expired",
            "another account, region, namespace or key than before",
        ],
        next: &[
            "give the plugin's identity encrypt and decrypt on that key again (AWS: kms:Encrypt, kms:Decrypt, kms:DescribeKey; Vault: update on transit/encrypt/… and transit/decrypt/…), or renew its credentials",
            CHECK,
            NOT_LOST,
        ],
    },
    Entry {
        id: "kms-sealed",
        axis: Axis::Kms,
        patterns: &[Pattern::Text("vault is sealed"), Pattern::Text("openbao is sealed")],
        in_logs: true,
        vague: false,
        meaning: "Vault (or OpenBao) runs and is sealed: it answers nothing until it is unsealed.",
        causes: &["it was restarted, and nothing unseals it by itself", "somebody sealed it"],
        next: &["`vault operator unseal` with a majority of the key shares; `vault status` shows it", CHECK, NOT_LOST],
    },
    Entry {
        id: "kms-token",
        axis: Axis::Kms,
        patterns: &[Pattern::Text("ckr_")],
        in_logs: true,
        vague: false,
        meaning: "The PKCS#11 token (an HSM) refused the call of the KMS plugin, by the code CKR_….",
        causes: &[
            "CKR_PIN_INCORRECT, CKR_PIN_LOCKED, CKR_USER_NOT_LOGGED_IN: the PIN, or a login that was lost",
            "CKR_KEY_HANDLE_INVALID, CKR_OBJECT_HANDLE_INVALID, CKR_KEY_FUNCTION_NOT_PERMITTED: the key is not there, or may not be used for this",
            "CKR_DEVICE_ERROR, CKR_DEVICE_REMOVED, CKR_TOKEN_NOT_PRESENT, CKR_SESSION_HANDLE_INVALID: the device was away or restarted",
        ],
        next: &[
            "`pkcs11-tool --module MODULE --login --list-objects`: does the token answer, and has it the key?",
            "do not try PINs: tokens lock; restart the plugin once the token answers",
            CHECK,
            NOT_LOST,
        ],
    },
];
