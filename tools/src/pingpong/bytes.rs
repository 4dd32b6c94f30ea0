//! The bytes of a message, and what `-c` finds in those that arrived.

use rdma_core::Region;

/// The byte that the C program fills its buffer with.
const FILL: u8 = 0x7b;
/// The byte that its client puts at the beginning of each page with `-c`.
const MARK: u8 = 0;
/// The least size of a page, so that marks of a peer whose pages are smaller are no fault.
const PAGE_MIN: usize = 4096;

/// Fills the buffer; a client that checks marks its pages, because the server looks for the marks.
pub fn fill(region: &Region, page: usize, marked: bool) -> anyhow::Result<()> {
    let mut bytes = vec![FILL; region.len()];
    if marked {
        bytes.iter_mut().step_by(page.max(1)).for_each(|byte| *byte = MARK);
    }
    Ok(region.copy_in(0, &bytes)?)
}

/// Returns the numbers of the pages in which a byte is wrong.
pub fn invalid_pages(region: &Region, page: usize) -> anyhow::Result<Vec<usize>> {
    let mut bytes = vec![0; region.len()];
    region.copy_out(0, &mut bytes)?;
    Ok(invalid(&bytes, page))
}

fn invalid(bytes: &[u8], page: usize) -> Vec<usize> {
    let is_right = |(offset, byte): (usize, &u8)| match offset {
        0 => *byte == MARK,
        _ if offset.is_multiple_of(PAGE_MIN) => matches!(*byte, MARK | FILL),
        _ => *byte == FILL,
    };
    let wrong = |chunk: &[u8]| !chunk.iter().enumerate().all(is_right);
    let pages = bytes.chunks(page.max(1)).enumerate();
    pages.filter(|(_, chunk)| wrong(chunk)).map(|(number, _)| number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(len: usize, page: usize) -> Vec<u8> {
        (0..len).map(|offset| if offset % page == 0 { MARK } else { FILL }).collect()
    }

    #[test]
    fn marked_pages_are_right_whatever_the_size_of_the_peers_pages() {
        for len in [1, 2, 4095, 4096, 4097, 65_536, 1 << 20] {
            assert!(invalid(&marked(len, 4096), 4096).is_empty(), "{len}");
            assert!(invalid(&marked(len, 4096), 65_536).is_empty(), "{len}");
        }
    }

    #[test]
    fn each_wrong_byte_is_found() {
        let good = marked(9000, 4096);
        for offset in [0, 1, 4095, 4096, 4097, 8192, 8999] {
            let mut bad = good.clone();
            bad[offset] ^= 1;
            assert_eq!(invalid(&bad, 4096), [offset / 4096], "{offset}");
        }
        assert_eq!(invalid(&vec![FILL; 8193], 4096), [0, 1, 2]);
    }
}
