//! What protects the memory of this process, which holds keys.

use rustix::mm::MlockAllFlags;
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// No core dump, and no other process of the same user that reads this one's memory.
pub(crate) fn forbid_core_dumps() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let forbidden = rustix::process::setrlimit(Resource::Core, none)
        .and_then(|()| rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable));
    if let Err(error) = forbidden {
        tracing::warn!("core dumps are not forbidden: {error}");
    }
}

/// Keeps memory out of swap, where all of it may be locked.
///
/// Under a limit that is reached later the process could get no more memory at all, so that one has to be absent.
pub(crate) fn lock_memory() {
    let unlimited = Rlimit { current: None, maximum: None };
    // With what is locked only when it is first touched, the stacks of threads cost nothing.
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    let locked = match rustix::process::setrlimit(Resource::Memlock, unlimited) {
        Err(error) if !may_lock_all() => Err(error),
        _ => rustix::mm::mlockall(all),
    };
    match locked {
        Ok(()) => tracing::info!("memory is locked: it is not swapped out"),
        Err(error) => tracing::info!("memory is not locked, and may be swapped out (LimitMEMLOCK=infinity): {error}"),
    }
}

/// Whether no limit holds for this process.
fn may_lock_all() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
}
