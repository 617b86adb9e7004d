"""Reads a safetensors file with nothing of ours and prints what it holds, for safetensors_reader_test.cc.

One line for each tensor, by name: name, dtype, shape, then the values as hexadecimal floats.
"""
import json
import struct
import sys

import numpy

with open(sys.argv[1], "rb") as file:
    content = file.read()
(length,) = struct.unpack("<Q", content[:8])
assert length % 8 == 0, "the data isn't aligned"
header = json.loads(content[8 : 8 + length])
metadata = header.pop("__metadata__")
data = content[8 + length :]
assert sum(e - b for b, e in (t["data_offsets"] for t in header.values())) == len(data)
for name, tensor in sorted(header.items()):
    begin, end = tensor["data_offsets"]
    values = numpy.frombuffer(data[begin:end], dtype={"F32": "<f4"}[tensor["dtype"]]).reshape(tensor["shape"])
    print(name, tensor["dtype"], tensor["shape"], *(float(v).hex() for v in values.flatten()))
for shard in json.loads(metadata["lagrange"])["shards"]:
    print("shard", shard["variable"], shard["row_end"], shard["version"])
