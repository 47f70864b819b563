"""Fingerprints, with the bytes of each MD5 written out by hand."""

import hashlib

import pytest

from penstock.schemas.identity import Metadata, Rule, RuleSet, fingerprint, guid
from penstock.schemas.model import Reference

TEXT = '"string"'
METADATA = Metadata(
    tags={"b.*": ["PII", "A"], "a": ["X"]},
    properties={"owner": "me", "major": "1"},
    sensitive=["s"],
)
RULE = Rule(
    name="check",
    doc="d",
    kind="CONDITION",
    mode="WRITE",
    type="CEL",
    tags=["Z", "Y"],
    params={"q": "2", "p": "1"},
    expr="true",
    on_success="NONE",
    on_failure="ERROR",
)
RULE_BYTES = b"checkdCONDITIONWRITECELYZp1q2trueNONEERROR"


@pytest.mark.parametrize(
    ("identified", "hashed"),
    [
        (fingerprint(TEXT), b'"string"'),
        (
            fingerprint(TEXT, [Reference("n", "s", 1), Reference("m", "t", -1)]),
            b'"string"ns\x00\x00\x00\x01mt\xff\xff\xff\xff',
        ),
        (fingerprint("é"), b"\xc3\xa9"),
        (fingerprint(TEXT, metadata=Metadata()), b'"string"\x01'),
        (
            fingerprint(TEXT, metadata=METADATA),
            b'"string"\x01aXb.*APIImajor1ownermes',
        ),
        (fingerprint(TEXT, rule_set=RuleSet()), b'"string"\x01'),
        (
            fingerprint(
                TEXT,
                metadata=Metadata(),
                rule_set=RuleSet(
                    migration_rules=[Rule(name="m")],
                    domain_rules=[RULE, Rule(name="off", disabled=True)],
                    encoding_rules=[Rule(name="e")],
                    enable_at="now",
                ),
            ),
            b'"string"\x01\x01m' + RULE_BYTES + b"off\x01enow",
        ),
    ],
)
def test_the_fingerprint_is_the_md5_of_these_bytes(identified: bytes, hashed: bytes) -> None:
    assert identified == hashlib.md5(hashed, usedforsecurity=False).digest()


def test_the_guid_is_the_fingerprint_as_a_uuid() -> None:
    assert fingerprint(TEXT).hex() == guid(fingerprint(TEXT)).replace("-", "")
    assert guid(bytes(range(16))) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
