//! Cuts row groups into blocks: a row group can be far larger than memory allows, and a record far too
//! small to be decoded alone.

use parquet::file::metadata::RowGroupMetaData;

/// Bytes of a decoded block, about.
const BLOCK_BYTES: u64 = 4 << 20;
/// Records of a block, at most.
const MAX_ROWS: u64 = 8192;

/// The row groups of a file.
#[derive(Debug)]
pub(super) struct RowGroups {
    groups: Vec<RowGroup>,
    records: u64,
}

#[derive(Debug)]
struct RowGroup {
    first_record: u64,
    rows: u64,
    block_rows: u64,
    /// Number of the first block, counted over the file.
    first_block: u64,
}

/// Records that are decoded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowBlock {
    /// The row group.
    pub(super) group: usize,
    /// Number of the block, counted over the file.
    pub(super) number: u64,
    /// Number of the first record in the file.
    pub(super) first_record: u64,
    /// How many records it has.
    pub(super) rows: u64,
    /// How many records of the group come before.
    pub(super) skip: u64,
    /// How many records all blocks of the group have, save the last.
    pub(super) stride: u64,
    /// Number in the file of the record after the group.
    pub(super) group_end: u64,
}

impl RowGroups {
    pub(super) fn new(groups: &[RowGroupMetaData]) -> Result<RowGroups, String> {
        RowGroups::of(groups.iter().map(|group| (group.num_rows(), group.total_byte_size())))
    }

    /// From pairs of rows and bytes.
    fn of(sizes: impl Iterator<Item = (i64, i64)>) -> Result<RowGroups, String> {
        let (mut groups, mut records, mut blocks) = (Vec::new(), 0u64, 0u64);
        for (number, (rows, bytes)) in sizes.enumerate() {
            let wrong = |_| format!("row group {number} says that it has {rows} rows");
            let rows = u64::try_from(rows).map_err(wrong)?;
            let row_bytes = u64::try_from(bytes).unwrap_or(0) / rows.max(1);
            let block_rows = (BLOCK_BYTES / row_bytes.max(1)).clamp(1, MAX_ROWS);
            groups.push(RowGroup { first_record: records, rows, block_rows, first_block: blocks });
            blocks += rows.div_ceil(block_rows);
            records = records.checked_add(rows).ok_or("more rows than can be counted")?;
        }
        Ok(RowGroups { groups, records })
    }

    pub(super) fn records(&self) -> u64 {
        self.records
    }

    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The block of a record; none when there is no such record.
    pub(super) fn block_of(&self, record: u64) -> Option<RowBlock> {
        let after = self.groups.partition_point(|group| group.first_record <= record);
        let group = after.checked_sub(1)?;
        let RowGroup { first_record, rows, block_rows, first_block } = *self.groups.get(group)?;
        let within = (record - first_record) / block_rows;
        let skip = within * block_rows;
        (record - first_record < rows).then_some(RowBlock {
            group,
            number: first_block + within,
            first_record: first_record + skip,
            rows: block_rows.min(rows - skip),
            skip,
            stride: block_rows,
            group_end: first_record + rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_in_their_blocks() {
        // Rows of 1 MiB make blocks of 4; the empty group is passed over.
        let sizes = [(10, 10 << 20), (0, 0), (20_000, 1_000)];
        let layout = RowGroups::of(sizes.into_iter()).unwrap();
        assert_eq!((layout.records(), layout.groups()), (20_010, 3));
        let check = |record, expected: Option<(usize, u64, u64, u64)>| {
            let block = layout.block_of(record);
            let found = block.map(|b| (b.group, b.number, b.first_record, b.rows));
            assert_eq!(found, expected, "record {record}");
        };
        check(0, Some((0, 0, 0, 4)));
        check(9, Some((0, 2, 8, 2)));
        check(10, Some((2, 3, 10, 8192)));
        check(20_009, Some((2, 5, 16_394, 3616)));
        check(20_010, None);
    }

    #[test]
    fn absurd_counts_are_refused() {
        let check = |sizes: &[(i64, i64)]| assert!(RowGroups::of(sizes.iter().copied()).is_err());
        check(&[(-1, 5)]);
        check(&[(i64::MAX, 5), (i64::MAX, 5), (i64::MAX, 5)]);
        assert!(RowGroups::of([(5, -7)].into_iter()).is_ok());
        assert_eq!(RowGroups::of([].into_iter()).unwrap().block_of(0), None);
    }
}
