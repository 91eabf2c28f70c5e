"""What is served: a bundle that is being opened, open, or on its way out."""

import time
from pathlib import Path

from speccompile.runtime import Bundle
from speccompile.runtime.serving import Limits, Service
from speccompile.serve.metrics import Metrics
from speccompile.serve.refusal import UNAVAILABLE, RefusedError
from speccompile.serve.tokens import TokenTexts


class Model:
    """A bundle under the name that clients know. Until `open` has returned, every request is refused with 503."""

    def __init__(self, name: str, limits: Limits | None = None) -> None:
        self.name, self.limits, self.created = name, limits or Limits(), int(time.time())
        self.failure: Exception | None = None
        """What the bundle could not be opened for."""
        self.draining = False
        self._opened: _Opened | None = None

    def open(self, folder: Path, *, engine: str | None = None, threads: int | None = None, verify: bool = True) -> None:
        """Open a bundle folder and begin to serve it. Raises as `Bundle.open`; the model then says so by itself."""
        try:
            self.begin(Bundle.open(folder, engine=engine, threads=threads, verify=verify))
        except Exception as error:
            self.failure = error
            raise

    def begin(self, bundle: Bundle) -> None:
        """Serve a bundle that is open. From now on nobody else may use it."""
        self._opened = _Opened(bundle, self.name, self.limits)

    @property
    def status(self) -> str:
        """loading | ready | draining | failed"""
        if self.failure is not None:
            return "failed"
        if self._opened is None:
            return "loading"
        return "draining" if self.draining else "ready"

    @property
    def bundle(self) -> Bundle:
        """Raises RefusedError with 503 unless it is open, as do those below."""
        return self._open.bundle

    @property
    def service(self) -> Service:
        return self._open.service

    @property
    def metrics(self) -> Metrics:
        return self._open.metrics

    @property
    def texts(self) -> TokenTexts:
        return self._open.texts

    def close(self, seconds: float | None = None) -> None:
        """Take no more requests, finish those that are there for at most so long, and end the rest."""
        self.draining = True
        if self._opened is not None:
            self._opened.service.close(drain=True, timeout=seconds)

    @property
    def _open(self) -> "_Opened":
        if self._opened is None:
            why = f"it could not be opened: {self.failure}" if self.failure else "it is being opened"
            raise RefusedError(
                f"the model is not ready: {why}", status=503, kind=UNAVAILABLE, code=self.status,
                headers={"Retry-After": "1"},
            )  # fmt: skip
        return self._opened


class _Opened:
    """What there is once a bundle is open."""

    def __init__(self, bundle: Bundle, name: str, limits: Limits) -> None:
        self.bundle = bundle
        self.metrics = Metrics(name, bundle.engine_name, bundle.manifest.tokens)
        self.texts = TokenTexts(bundle.text)
        self.service = bundle.serve(limits, self.metrics)
