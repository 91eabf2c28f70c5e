"""The served model: a bundle that is being opened, is open, or is closing."""

import time
from collections.abc import Mapping
from pathlib import Path

from speccompile.runtime import Bundle
from speccompile.serving.http.errors import UNAVAILABLE, RequestError
from speccompile.serving.http.metrics import Metrics
from speccompile.serving.http.reading.limits import ReadLimits
from speccompile.serving.http.reading.reader import Reader
from speccompile.serving.http.tokens import TokenTexts
from speccompile.serving.scheduler import Limits, Service, SessionFolder


class ServedModel:
    """A bundle under the name that clients use. Until `open` has returned, every request is refused with 503."""

    def __init__(
        self,
        name: str,
        limits: Limits | None = None,
        read_limits: ReadLimits | None = None,
        sessions: SessionFolder | None = None,
    ) -> None:
        self.sessions = sessions
        self.name, self.limits, self.created = name, limits or Limits(), int(time.time())
        self.read_limits = read_limits or ReadLimits()
        self._unopened: Exception | None = None
        self.draining = False
        self._opened: _Opened | None = None

    def open(
        self, folder: Path, *, engine: str | None = None, threads: int | None = None, verify: bool = True,
        signed_by: Path | None = None, adapters: Mapping[str, Path] | None = None, image_cache: int | None = None,
    ) -> None:  # fmt: skip
        """Open a bundle folder, load adapters into it, folders by name, and begin to serve it. Raise as `Bundle.open`
        and `Bundle.load_adapter` do; `failure` then has the error."""
        try:
            bundle = Bundle.open(
                folder, engine=engine, threads=threads, verify=verify, signed_by=signed_by, image_cache=image_cache
            )
            for name, adapter in (adapters or {}).items():
                bundle.load_adapter(name, adapter)
            self.start(bundle, folder)
        except Exception as error:
            self._unopened = error
            raise

    def start(self, bundle: Bundle, folder: Path | None = None) -> None:
        """Serve an open bundle. From now on the model has exclusive use of it. folder: of the bundle, for processes
        that read requests."""
        reader = Reader(bundle, self.name, self.read_limits, folder)
        self._opened = _Opened(bundle, self.name, self.limits, reader, self.sessions)

    @property
    def names(self) -> list[str]:
        """Names that requests may give: of the model, and of the model with each of its adapters. Raise RequestError
        with 503 unless it is open."""
        return [self.name, *(f"{self.name}:{adapter}" for adapter in self.bundle.adapters)]

    @property
    def failure(self) -> Exception | None:
        """Return the error of opening the bundle, or of its engine."""
        return self._unopened if self._opened is None else self._opened.service.failure

    @property
    def status(self) -> str:
        """Return "loading", "ready", "draining" or "failed"."""
        if self.failure is not None:
            return "failed"
        if self._opened is None:
            return "loading"
        return "draining" if self.draining else "ready"

    @property
    def bundle(self) -> Bundle:
        """Return the bundle. Raise RequestError with 503 unless it is open; the properties below do the same."""
        return self._open.bundle

    @property
    def service(self) -> Service:
        """Return the service. Raise RequestError with 503 also if its engine has failed."""
        if self._opened is not None and self.failure is not None:
            raise self._refusal(f"its engine has failed: {self.failure}")
        return self._open.service

    @property
    def reader(self) -> Reader:
        return self._open.reader

    @property
    def metrics(self) -> Metrics:
        return self._open.metrics

    @property
    def texts(self) -> TokenTexts:
        return self._open.texts

    def close(self, seconds: float | None = None) -> None:
        """Take no more requests, finish the present ones for at most `seconds`, and end the rest."""
        self.draining = True
        if self._opened is not None:
            self._opened.reader.close()  # the service would refuse what is still being read
            self._opened.service.close(drain=True, timeout=seconds)

    @property
    def _open(self) -> "_Opened":
        if self._opened is None:
            raise self._refusal(f"it could not be opened: {self.failure}" if self.failure else "it is being opened")
        return self._opened

    def _refusal(self, why: str) -> RequestError:
        message, headers = f"the model is not ready: {why}", {"Retry-After": "1"}
        return RequestError(message, status=503, kind=UNAVAILABLE, code=self.status, headers=headers)


class _Opened:
    """An open bundle with its reader, metrics, token texts and service."""

    def __init__(
        self, bundle: Bundle, name: str, limits: Limits, reader: Reader, sessions: SessionFolder | None
    ) -> None:
        self.bundle, self.reader = bundle, reader
        encoder = None if bundle.vision is None else bundle.vision.encoder
        self.metrics = Metrics(name, bundle.engine_name, bundle.manifest.tokens, encoder)
        self.texts = TokenTexts(bundle.text)
        self.service: Service = bundle.serve(limits, self.metrics, sessions)
