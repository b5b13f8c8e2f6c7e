//! The machine's values, and the heap that a reader provides.

/// A string in a [`Heap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextId(pub(crate) u32);

/// A list, tuple or dict in a [`Heap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectId(pub(crate) u32);

/// A slot of the machine's stack. Cheap to copy: containers and strings are handles.
///
/// The tag is 64 bits wide so that a copy is two whole words. With a narrow tag, the compiler copies the bytes after
/// it in overlapping pieces, which defeats store-to-load forwarding.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u64)]
pub(crate) enum Value {
    /// Python's `None`.
    None,
    /// True or false.
    Bool(bool),
    /// An integer; negative ones in two's complement, because PyTorch's C++ writer casts addresses to `int64`.
    Int(u64),
    /// A floating-point number.
    Float(f64),
    /// A string.
    Text(TextId),
    /// A container.
    Object(ObjectId),
    /// An unused value: bytes, a set, an integer beyond 64 bits, or a string too long to be a name.
    Opaque,
}

/// Why a heap rejects an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The target of an append is not a list.
    NotAList,
    /// The target of an insert is not a dict.
    NotADict,
    /// The container is already part of another one. Picklers complete a container before they place it, except in
    /// circular data.
    Changed,
    /// A limit was exceeded.
    TooMany(&'static Limit),
}

/// A limit on a count. Used by reference, so that a [`Fault`] stays as small as a handle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) what: &'static str,
    pub(crate) count: usize,
}

/// Stores strings and containers.
pub(crate) trait Heap {
    /// Stores a string.
    fn text(&mut self, bytes: &[u8]) -> Value;
    /// Creates an empty dict.
    fn dict(&mut self) -> Result<Value, Fault>;
    /// Creates an empty list.
    fn list(&mut self) -> Result<Value, Fault>;
    /// Creates a tuple.
    fn tuple(&mut self, items: &[Value]) -> Result<Value, Fault>;
    /// Appends to a list.
    fn append(&mut self, list: Value, items: &[Value]) -> Result<(), Fault>;
    /// Inserts the alternating keys and values of `pairs` into a dict.
    fn insert(&mut self, dict: Value, pairs: &[Value]) -> Result<(), Fault>;
    /// Hint that a value is probably complete, because a sibling was started after it.
    fn settle(&mut self, value: Value) -> Result<(), Fault>;
    /// The string of a handle, for messages.
    fn text_of(&self, text: TextId) -> &str;
}
