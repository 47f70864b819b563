"""The answers that are sent most, packed by hand: bodies without headers, for any version served.

What goes in are plain tuples; what comes out is checked against kio's readers, version by version.
"""
