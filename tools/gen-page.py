#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gen-page.py PAGE.html OUT.h: an HTML page as an array of C, and its Content-Security-Policy.

The policy allows the page's own <script> and <style> by their hashes, and requests to the
server that the page comes from; nothing else.
"""
import base64
import hashlib
import re
import sys


def hashes(tag, text):
    """The hashes of all elements of this tag."""
    return " ".join(
        "'sha256-%s'" % base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        for part in re.findall(r"<%s>(.*?)</%s>" % (tag, tag), text, re.DOTALL))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    policy = "; ".join([
        "default-src 'none'", "script-src " + hashes("script", text),
        "style-src " + hashes("style", text), "img-src data:", "connect-src 'self'",
        "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"])
    data = text.encode()
    with open(sys.argv[2], "w", encoding="ascii") as file:
        file.write('#define PAGE_POLICY "%s"\n' % policy)
        file.write("static const unsigned char page_html[] = {\n")
        for at in range(0, len(data), 20):
            file.write("\t" + ", ".join(map(str, data[at:at + 20])) + ",\n")
        file.write("};\n")


if __name__ == "__main__":
    main()
