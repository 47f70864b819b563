// The columns of a list of records.

import { count, time } from "../format.js";
import { oneLine } from "../json_view.js";

export const RECORD_COLUMNS = [
  { name: "timestamp", label: "Time", width: "204px", mono: true, cell: (row) => (row.gap ? "" : time(row.timestamp)) },
  { name: "partition", label: "Partition", width: "84px", right: true, cell: (row) => row.partition },
  { name: "offset", label: "Offset", width: "minmax(80px, 112px)", right: true, cell: (row) => count(row.offset) },
  { name: "key", label: "Key", width: "minmax(80px, 220px)", mono: true, cell: (row) => (row.gap ? "" : oneLine(row.key)) },
  { name: "value", label: "Value", width: "minmax(120px, 1fr)", mono: true, cell: (row) => (row.gap ? "no record: compacted, or the end of a transaction" : oneLine(row.value)) },
];

/** Without the partition, where there is only one. */
export const PARTITION_COLUMNS = RECORD_COLUMNS.filter((column) => column.name !== "partition");

/** A record's place as it stands in the address. */
export const recordId = (row) => `${row.partition}:${row.offset}`;
