//! Writes Python's pickle format: dicts, lists, strings and numbers, nothing that executes code.
//!
//! Uses protocol 4, which every reader of snapshots supports (PyTorch's own viewer rejects 5). A string is written once
//! and then referenced: every event repeats the same dozen keys and the same few frames, and without references the
//! file would be six times as long. The pickle crates for serde do not support this, so this writer is our own.
//!
//! ```
//! use makeroom_pickle::{Pickle, Pickling as _};
//!
//! let mut bytes = Vec::new();
//! let mut pickle = Pickle::new(&mut bytes)?;
//! pickle.dict(|pickle| {
//!     pickle.key("device")?.number(0)?;
//!     pickle.key("name")?.text("H200")
//! })?;
//! pickle.finish()?;
//! // Python's `pickle.loads` returns {'device': 0, 'name': 'H200'}.
//! assert_eq!((bytes.first(), bytes.last()), (Some(&0x80), Some(&b'.')));
//! # Ok::<(), std::io::Error>(())
//! ```

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io::{self, Write};

/// A written value that can be referenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memo(u32);

/// Number of list items appended at once, as in Python. PyTorch's viewer passes them as arguments of one call, and
/// cannot pass a hundred thousand.
const BATCH: usize = 1000;

/// A writer of a pickle: the pickle itself, or a type that contains it along with other data.
pub trait Pickling {
    /// The output.
    type To: Write;

    /// The pickle being written.
    fn pickle(&mut self) -> &mut Pickle<Self::To>;

    /// A dict; `fill` alternates [`Pickle::key`] and a value.
    fn dict(&mut self, fill: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()>
    where
        Self: Sized,
    {
        self.pickle().to.write_all(b"}(")?;
        fill(self)?;
        self.pickle().to.write_all(b"u")
    }

    /// A list with this many items.
    fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()>
    where
        Self: Sized,
    {
        self.pickle().empty_list()?;
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            self.pickle().to.write_all(b"(")?;
            items.by_ref().take(BATCH).try_for_each(|item| write(self, item))?;
            self.pickle().to.write_all(b"e")?;
        }
        Ok(())
    }
}

impl<W: Write> Pickling for Pickle<W> {
    type To = W;

    fn pickle(&mut self) -> &mut Self {
        self
    }
}

/// A pickle being written.
#[derive(Debug)]
pub struct Pickle<W> {
    to: W,
    written: u32,
    texts: HashMap<String, Memo>,
}

impl<W: Write> Pickle<W> {
    /// Starts a pickle.
    pub fn new(mut to: W) -> io::Result<Self> {
        to.write_all(&[0x80, 4])?;
        Ok(Self { to, written: 0, texts: HashMap::new() })
    }

    /// Completes the pickle.
    pub fn finish(mut self) -> io::Result<()> {
        self.to.write_all(b".")?;
        self.to.flush()
    }

    /// An empty list.
    pub fn empty_list(&mut self) -> io::Result<()> {
        self.to.write_all(b"]")
    }

    /// A list that can be referenced.
    pub fn shared_list(&mut self, fill: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<Memo> {
        self.to.write_all(b"]")?;
        let memo = self.memoize()?;
        self.to.write_all(b"(")?;
        fill(self)?;
        self.to.write_all(b"e")?;
        Ok(memo)
    }

    /// A dict that can be referenced; `fill` alternates [`Pickle::key`] and a value.
    pub fn shared_dict(&mut self, fill: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<Memo> {
        self.to.write_all(b"}")?;
        let memo = self.memoize()?;
        self.to.write_all(b"(")?;
        fill(self)?;
        self.to.write_all(b"u")?;
        Ok(memo)
    }

    /// Two numbers as a tuple.
    pub fn pair(&mut self, first: u64, second: u64) -> io::Result<()> {
        self.number(first)?;
        self.number(second)?;
        self.to.write_all(&[0x86])
    }

    /// The key of the next value.
    pub fn key(&mut self, text: &str) -> io::Result<&mut Self> {
        self.text(text)?;
        Ok(self)
    }

    /// A string; a repeated one becomes a reference.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(&memo) = self.texts.get(text) {
            return self.again(memo);
        }
        if let Ok(length) = u8::try_from(text.len()) {
            self.to.write_all(&[0x8c, length])?;
        } else {
            let length = u32::try_from(text.len()).map_err(io::Error::other)?;
            self.to.write_all(b"X")?;
            self.to.write_all(&length.to_le_bytes())?;
        }
        self.to.write_all(text.as_bytes())?;
        let memo = self.memoize()?;
        self.texts.insert(text.to_owned(), memo);
        Ok(())
    }

    /// An integer.
    pub fn number(&mut self, value: u64) -> io::Result<()> {
        if let Ok(value) = u8::try_from(value) {
            return self.to.write_all(&[b'K', value]);
        }
        if let Ok(value) = u16::try_from(value) {
            self.to.write_all(b"M")?;
            return self.to.write_all(&value.to_le_bytes());
        }
        if let Ok(value) = i32::try_from(value) {
            self.to.write_all(b"J")?;
            return self.to.write_all(&value.to_le_bytes());
        }
        // Shortest two's complement: one more byte if the highest bit would be taken for a sign.
        let bytes = value.to_le_bytes();
        let significant = 8 - value.leading_zeros() as usize / 8;
        let sign = usize::from(bytes[significant - 1] & 0x80 != 0);
        self.to.write_all(&[0x8a, (significant + sign) as u8])?;
        self.to.write_all(&bytes[..significant])?;
        self.to.write_all(&[0][..sign])
    }

    /// The number −1.
    pub fn minus_one(&mut self) -> io::Result<()> {
        self.to.write_all(b"J")?;
        self.to.write_all(&(-1_i32).to_le_bytes())
    }

    /// A floating-point number.
    pub fn real(&mut self, value: f64) -> io::Result<()> {
        self.to.write_all(b"G")?;
        self.to.write_all(&value.to_be_bytes())
    }

    /// A boolean.
    pub fn truth(&mut self, value: bool) -> io::Result<()> {
        self.to.write_all(&[if value { 0x88 } else { 0x89 }])
    }

    /// A reference to an earlier value.
    pub fn again(&mut self, memo: Memo) -> io::Result<()> {
        if let Ok(short) = u8::try_from(memo.0) {
            return self.to.write_all(&[b'h', short]);
        }
        self.to.write_all(b"j")?;
        self.to.write_all(&memo.0.to_le_bytes())
    }

    fn memoize(&mut self) -> io::Result<Memo> {
        self.to.write_all(&[0x94])?;
        let memo = Memo(self.written);
        self.written = self.written.checked_add(1).ok_or_else(|| io::Error::other("too many strings"))?;
        Ok(memo)
    }
}
