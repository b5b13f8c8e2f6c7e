//! The opcodes that create and fill lists, tuples, dicts and sets.

use super::machine::{Machine, Outcome};
use super::opcode as op;
use super::value::{Heap, Value};

impl<H: Heap> Machine<'_, '_, H> {
    /// Executes the opcodes for containers. This is the last handler, so unknown opcodes end here.
    pub(super) fn contain(&mut self, opcode: u8) -> Outcome<()> {
        match opcode {
            op::APPEND => {
                let item = self.pop()?;
                let list = self.top()?;
                self.heap.append(list, &[item]).map_err(|fault| self.fault(fault))
            }
            op::SETITEM => {
                let value = self.pop()?;
                let key = self.pop()?;
                let dict = self.top()?;
                self.heap.insert(dict, &[key, value]).map_err(|fault| self.fault(fault))
            }
            op::EMPTY_TUPLE => self.tuple(self.stack.len()),
            op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                let count = usize::from(opcode - op::TUPLE1) + 1;
                if self.stack.len() - self.floor < count {
                    return Err(self.nothing_there());
                }
                self.tuple(self.stack.len() - count)
            }
            op::TUPLE => {
                let start = self.take_mark()?;
                self.tuple(start)
            }
            op::LIST => {
                let start = self.take_mark()?;
                let list = self.heap.list().map_err(|fault| self.fault(fault))?;
                self.append(list, start)?;
                self.stack.push(list);
                Ok(())
            }
            op::DICT => {
                let start = self.take_mark()?;
                let dict = self.heap.dict().map_err(|fault| self.fault(fault))?;
                self.insert(dict, start)?;
                self.stack.push(dict);
                Ok(())
            }
            // Snapshots contain no sets, so their items do not matter.
            op::EMPTY_SET => {
                self.stack.push(Value::Opaque);
                Ok(())
            }
            op::ADDITEMS => {
                let start = self.take_mark()?;
                self.stack.truncate(start);
                Ok(())
            }
            op::FROZENSET => {
                let start = self.take_mark()?;
                self.stack.truncate(start);
                self.stack.push(Value::Opaque);
                Ok(())
            }
            _ => match op::refused(opcode) {
                Some(callable) => Err(self.refused(callable)),
                None => Err(self.unknown(opcode)),
            },
        }
    }

    pub(super) fn push_dict(&mut self) -> Outcome<()> {
        // In a list of dicts, the previous one is now complete. Settling it early keeps the heap from holding
        // millions of open dicts if a writer does not store its lists in batches.
        if let Some(&before) = self.stack[self.floor..].last() {
            self.heap.settle(before).map_err(|fault| self.fault(fault))?;
        }
        let dict = self.heap.dict().map_err(|fault| self.fault(fault))?;
        self.stack.push(dict);
        Ok(())
    }

    pub(super) fn push_list(&mut self) -> Outcome<()> {
        let list = self.heap.list().map_err(|fault| self.fault(fault))?;
        self.stack.push(list);
        Ok(())
    }

    fn tuple(&mut self, start: usize) -> Outcome<()> {
        let tuple = self.heap.tuple(&self.stack[start..]).map_err(|fault| self.fault(fault))?;
        self.stack.truncate(start);
        self.stack.push(tuple);
        Ok(())
    }

    /// Removes the newest mark. Returns where the values above it begin, and the container right below it.
    #[inline]
    pub(super) fn marked_container(&mut self) -> Outcome<(usize, Value)> {
        let start = self.take_mark()?;
        match self.stack[self.floor..start].last() {
            Some(&container) => Ok((start, container)),
            None => Err(self.nothing_there()),
        }
    }

    /// Moves the values from `start` into a list.
    #[inline]
    pub(super) fn append(&mut self, list: Value, start: usize) -> Outcome<()> {
        self.heap.append(list, &self.stack[start..]).map_err(|fault| self.fault(fault))?;
        self.stack.truncate(start);
        Ok(())
    }

    /// Moves the keys and values from `start` into a dict.
    #[inline]
    pub(super) fn insert(&mut self, dict: Value, start: usize) -> Outcome<()> {
        let pairs = &self.stack[start..];
        if !pairs.len().is_multiple_of(2) {
            return Err(self.malformed("a value for each key", "a key without a value".to_owned()));
        }
        self.heap.insert(dict, pairs).map_err(|fault| self.fault(fault))?;
        self.stack.truncate(start);
        Ok(())
    }
}
