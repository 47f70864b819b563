"""TLS as settings that can be sent to workers, and the context made of them."""

import ssl
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Tls:
    """Whom to trust and who we are; files in PEM."""

    ca_file: str | None = None  # None: whom the machine trusts
    certificate_file: str | None = None  # ours, where brokers ask for one
    key_file: str | None = None  # None: in the certificate's file
    key_password: str | None = field(default=None, repr=False)
    checks_hostname: bool = True


@lru_cache(maxsize=8)
def tls_context(tls: Tls) -> ssl.SSLContext:
    """A client's context; made once, for it reads files."""
    context = ssl.create_default_context(cafile=tls.ca_file)
    context.check_hostname = tls.checks_hostname
    if tls.certificate_file is not None:
        context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
    return context
