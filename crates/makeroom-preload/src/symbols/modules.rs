//! Finds the file that an address of this process belongs to, in `/proc/self/maps`.

use crate::files;

/// One executable mapping of a file.
#[derive(Clone, Debug)]
struct Mapping {
    start: u64,
    end: u64,
    /// File offset of its start.
    offset: u64,
    path: Vec<u8>,
}

/// The executable mappings by ascending address, reread when an address is in none of them.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    mappings: Vec<Mapping>,
}

impl Modules {
    /// The file that contains an address, and the offset in the file.
    pub(crate) fn find(&mut self, address: u64) -> Option<(&[u8], u64)> {
        if self.position(address).is_none() {
            self.mappings = parse(&files::read("/proc/self/maps").ok()?);
        }
        let mapping = self.mappings.get(self.position(address)?)?;
        Some((&mapping.path, address - mapping.start + mapping.offset))
    }

    fn position(&self, address: u64) -> Option<usize> {
        let after = self.mappings.partition_point(|mapping| mapping.start <= address);
        let index = after.checked_sub(1)?;
        self.mappings.get(index).filter(|mapping| address < mapping.end).map(|_| index)
    }
}

/// Parses the executable mappings of files from lines such as `7f12-7f34 r-xp 00001000 fd:01 99  /usr/lib/libc.so.6`.
fn parse(maps: &[u8]) -> Vec<Mapping> {
    maps.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let mut range = words.next()?.split(|&byte| byte == b'-');
    let (start, end) = (hexadecimal(range.next()?)?, hexadecimal(range.next()?)?);
    let permissions = words.next()?;
    let offset = hexadecimal(words.next()?)?;
    let path = words.nth(2)?.trim_ascii_start();
    (permissions.get(2) == Some(&b'x') && path.first() == Some(&b'/')).then(|| Mapping {
        start,
        end,
        offset,
        path: path.to_vec(),
    })
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_counts() {
        let maps = b"1000-2000 r--p 00000000 fd:01 9                    /lib/a b.so\n\
                     2000-5000 r-xp 00001000 fd:01 9                    /lib/a b.so\n\
                     6000-7000 r-xp 00000000 00:00 0                    [vdso]\n\
                     7000-8000 rw-p 00000000 00:00 0 \n";
        let mut modules = Modules { mappings: parse(maps) };
        assert_eq!(modules.mappings.len(), 1);
        assert_eq!(modules.find(0x2010), Some((&b"/lib/a b.so"[..], 0x1010)));
    }
}
