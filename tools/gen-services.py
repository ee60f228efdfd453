#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gen-services.py SET OUT.h: the files of a FileDescriptorSet as arrays of C, the names that
each of them defines, and the names of its services.
"""
import sys


def fields(data):
    """(number, value) of each field of a message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 2:
            size = varint()
            at += size
            yield tag >> 3, data[at - size:at]
        else:
            sys.exit("a field of another kind than descriptors have")


def named(message, number):
    """The messages in field `number`, with their names."""
    return [(dict(fields(part))[1].decode(), part)
            for n, part in fields(message) if n == number]


def symbols(file):
    head = dict(fields(file))
    package = head[2].decode()
    left = [(f"{package}.{name}", part) for name, part in named(file, 4)]
    names = [f"{package}.{name}" for name, _ in named(file, 5)]
    services = []
    while left:
        name, part = left.pop()
        names.append(name)
        left += [(f"{name}.{inner}", p) for inner, p in named(part, 3)]
        names += [f"{name}.{inner}" for inner, _ in named(part, 4) + named(part, 2)]
    for name, part in named(file, 6):
        services.append(f"{package}.{name}")
        names += [services[-1]] + [f"{services[-1]}.{call}" for call, _ in named(part, 2)]
    return head[1].decode(), names, services


def main():
    with open(sys.argv[1], "rb") as file:
        files = [part for number, part in fields(file.read()) if number == 1]
    with open(sys.argv[2], "w", encoding="ascii") as out:
        rows = []
        for i, file in enumerate(files):
            name, names, services = symbols(file)
            out.write(f"static const unsigned char file_{i}[] = {{\n")
            for at in range(0, len(file), 20):
                out.write("\t" + ", ".join(map(str, file[at:at + 20])) + ",\n")
            out.write("};\n")
            for what, texts in (("names", names), ("services", services)):
                out.write(f"static const char *const {what}_{i}[] = {{\n")
                out.write("".join(f'\t"{text}",\n' for text in texts) + "\tNULL\n};\n")
            rows.append(f'\t{{ "{name}", file_{i}, sizeof(file_{i}), names_{i}, services_{i} }},\n')
        out.write("static const struct file files[] = {\n" + "".join(rows) + "};\n")


if __name__ == "__main__":
    main()
