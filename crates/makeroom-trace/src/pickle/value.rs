//! What the machine moves, and what a reader has to provide for it.

/// A text that a [`Heap`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextId(pub(crate) u32);

/// A list, tuple or dict that a [`Heap`] keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectId(pub(crate) u32);

/// One place of the machine's stack. It is copied freely: containers and texts are handles.
///
/// The tag is as wide as the content, so that a copy is two whole words; with a narrow tag the compiler copies the
/// bytes behind it in overlapping pieces, which the processor cannot forward from store to load.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u64)]
pub(crate) enum Value {
    /// Python's `None`.
    None,
    /// True or false.
    Bool(bool),
    /// An integer; a negative one in two's complement, as PyTorch's C++ writer turns addresses into `int64`.
    Int(u64),
    /// A floating-point number.
    Float(f64),
    /// A text.
    Text(TextId),
    /// A container.
    Object(ObjectId),
    /// Something without a use here: bytes, sets, integers beyond 64 bits, texts too long for a name.
    Opaque,
}

/// Why a heap will not do what the file asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Items go into a list; this is none.
    NotAList,
    /// Keys and values go into a dict; this is none.
    NotADict,
    /// The container was already part of another one. Picklers complete a container before they place it; only
    /// circular data is written otherwise.
    Changed,
    /// More of something than is read.
    TooMany(&'static Limit),
}

/// How many of something are read. Behind a reference, so that a [`Fault`] stays as small as a handle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) what: &'static str,
    pub(crate) count: usize,
}

/// The keeper of texts and containers.
pub(crate) trait Heap {
    /// Takes in a text.
    fn text(&mut self, bytes: &[u8]) -> Value;
    /// Makes an empty dict.
    fn dict(&mut self) -> Result<Value, Fault>;
    /// Makes an empty list.
    fn list(&mut self) -> Result<Value, Fault>;
    /// Makes a tuple.
    fn tuple(&mut self, items: &[Value]) -> Result<Value, Fault>;
    /// Appends to a list.
    fn append(&mut self, list: Value, items: &[Value]) -> Result<(), Fault>;
    /// Puts keys and values, which alternate in `pairs`, into a dict.
    fn insert(&mut self, dict: Value, pairs: &[Value]) -> Result<(), Fault>;
    /// Learns that a value will hardly change any more: a sibling was begun right after it.
    fn settle(&mut self, value: Value) -> Result<(), Fault>;
    /// The text behind a handle, for messages.
    fn text_of(&self, text: TextId) -> &str;
}
