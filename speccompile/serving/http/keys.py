"""API keys of clients."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from speccompile.serving.http.errors import RequestError


@dataclass(frozen=True)
class Keys:
    """API keys. Without any key, all clients are accepted."""

    keys: tuple[str, ...] = ()

    def authenticate(self, authorization: str | None) -> str:
        """Return an id of the client, which does not reveal its key, from the header `Authorization: Bearer KEY`. Raise
        RequestError for an unknown key, in a time that does not depend on where it differs."""
        if not self.keys:
            return ""
        scheme, _, received = (authorization or "").partition(" ")
        given = received.strip().encode("latin-1", "replace")  # headers are bytes, which servers decode like this
        matches = [hmac.compare_digest(given, key.encode()) for key in self.keys]
        if scheme.lower() != "bearer" or not any(matches):
            what = "no API key" if authorization is None else "an API key that is not known"
            raise RequestError(
                f"received {what}, expected one of this server's in the header Authorization: Bearer KEY",
                status=401, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"},
            )  # fmt: skip
        return hashlib.sha256(given).hexdigest()[:16]


def read_keys(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the keys in a file's lines, one each; skip empty lines and those that begin with #."""
    return tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
