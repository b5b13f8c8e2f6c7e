//! Where the ring's own tests take their memory from: miri has no pages without reserve.

pub(crate) mod memory {
    use std::alloc::{Layout, alloc_zeroed};
    use std::marker::PhantomData;

    /// A `T` of zeros.
    pub(crate) struct Lazy<T>(PhantomData<T>);

    impl<T> Lazy<T> {
        /// # Safety
        ///
        /// All zeros must be a valid `T`.
        pub(crate) const unsafe fn new() -> Self {
            Self(PhantomData)
        }

        pub(crate) fn get(&self) -> Option<&'static T> {
            // SAFETY: the layout has a size, and zeros are valid by the maker's word; it is never freed.
            unsafe { alloc_zeroed(Layout::new::<T>()).cast::<T>().as_ref() }
        }
    }
}
