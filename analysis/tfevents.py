"""Writes the event files that TensorBoard reads, without TensorFlow: records of protocol buffers, by hand.

A record is its length (8 bytes, little-endian), the masked CRC32C of those, the data, the masked CRC32C of the data
(tensorflow/core/lib/io/record_writer.cc). The data is an Event (tensorflow/core/util/event.proto, summary.proto):
    Event:   1 wall_time double, 2 step int64, 3 file_version string, 5 summary Summary
    Summary: 1 value Value, repeated.   Value: 1 tag string, 2 simple_value float, 8 tensor, 9 metadata
Rows of scalars differ in time, step and values only, so that they are made many at a time, as rows of a byte matrix.
"""

import struct

import numpy as np

MOST_TAGS = 64  # in an event


def _crc_table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)  # Castagnoli, reflected
    return table.astype(np.uint32)


TABLE = _crc_table()


def masked_crc(rows):
    """Of each row of bytes[n, length]: uint32[n]."""
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(rows.T):
        crc = TABLE[(crc ^ column) & 0xFF] ^ (crc >> 8)
    crc = ~crc
    return ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, data):
    """A field of text, bytes or a message."""
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def _bytes(values, dtype):
    """[n, bytes] of values[n]."""
    values = np.ascontiguousarray(values, dtype)
    return values.view(np.uint8).reshape(len(values), -1)


class Writer:
    """Writes events to a binary file."""

    def __init__(self, file, time):
        self.file, self.n_values = file, 0
        self._event(time, 0, field(3, "brain.Event:2"))

    def scalars(self, tags, times, steps, columns):
        """columns[tag] holds the values of one tag at these times and steps; written as float32."""
        for first in range(0, len(tags), MOST_TAGS):
            some = slice(first, first + MOST_TAGS)
            self._rows(tags[some], np.asarray(times), np.asarray(steps), columns[some])

    def _rows(self, tags, times, steps, columns):
        heads = [field(1, tag) + b"\x15" for tag in tags]  # then four bytes, the float
        heads = [b"\x0a" + varint(len(head) + 4) + head for head in heads]
        summary = sum(len(head) + 4 for head in heads)
        lengths = np.array([len(varint(int(s))) for s in steps])
        for length in np.unique(lengths):  # of the step's number, mostly one
            rows = np.flatnonzero(lengths == length)
            step_bytes = np.frombuffer(b"".join(varint(int(s)) for s in steps[rows]), np.uint8).reshape(len(rows), -1)
            parts = [b"\x09", _bytes(times[rows], "<f8"), b"\x10", step_bytes, b"\x2a" + varint(summary)]
            for head, column in zip(heads, columns):
                with np.errstate(over="ignore"):  # to infinity, as every writer of float32 does
                    parts += [head, _bytes(np.asarray(column)[rows], "<f4")]
            self._write(parts, len(rows))
        self.n_values += len(tags) * len(steps)

    def text(self, tag, time, step, text):
        """A line of TensorBoard's text page (Markdown)."""
        tensor = b"\x08\x07" + field(2, field(2, b"\x08\x01")) + field(8, text)  # DT_STRING, shape [1]
        metadata = field(1, field(1, "text"))
        self._event(time, step, field(5, field(1, field(1, tag) + field(8, tensor) + field(9, metadata))))

    def _event(self, time, step, data):
        self._write([b"\x09" + struct.pack("<d", time) + b"\x10" + varint(step) + data], 1)

    def _write(self, parts, n):
        """n records of the same length: each part is the same bytes for all, or a matrix [n, bytes]."""
        parts = [np.broadcast_to(np.frombuffer(p, np.uint8), (n, len(p))) if isinstance(p, bytes) else p for p in parts]
        data = np.concatenate(parts, axis=1)
        head = _bytes(np.full(n, data.shape[1]), "<u8")
        record = [head, _bytes(masked_crc(head), "<u4"), data, _bytes(masked_crc(data), "<u4")]
        self.file.write(np.concatenate(record, axis=1).tobytes())
