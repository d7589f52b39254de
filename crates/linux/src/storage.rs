//! The memory of an object of libbpf.

use std::mem::MaybeUninit;

use libbpf_rs::OpenObject;

/// The memory of libbpf's object; freed when dropped. A skeleton has a reference to it, so declare the skeleton
/// before the storage: fields are dropped in this order.
pub(crate) struct Storage(*mut MaybeUninit<OpenObject>);

impl Storage {
    /// New memory, and the reference to it for a skeleton.
    ///
    /// # Safety
    /// The reference must not be used once the storage is dropped.
    pub(crate) unsafe fn new() -> (Self, &'static mut MaybeUninit<OpenObject>) {
        let storage = Box::into_raw(Box::new(MaybeUninit::uninit()));
        // SAFETY: the box stays at its address until the storage is dropped, and nothing else has the pointer.
        (Storage(storage), unsafe { &mut *storage })
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `Box::into_raw`, and by the contract of `new` the reference is no longer used.
        drop(unsafe { Box::from_raw(self.0) });
    }
}
