"""The profile of this machine, kept between commands: measured once for a processor, kernels and threads."""

from speccompile import __version__, native
from speccompile.bundle.result_cache import ResultCache
from speccompile.machine.system import available_cores, processor
from speccompile.measure.profile.file import FORMAT, Profile, parse_profile
from speccompile.measure.profile.measure import measure_profile

PROFILES = "profiles"
"""Name of the cache."""


def own_profile(threads: int | None = None) -> Profile:
    """Return the kept profile of this machine; measure and keep it if there is none. threads: by default one a core.

    Raise EngineError as `measure_profile` does.
    """
    threads = threads or available_cores()
    found = _cache().read(_key(threads))
    return parse_profile(found, "this machine's profile") if found else keep(measure_profile(threads))


def has_own_profile(threads: int | None = None) -> bool:
    """Return whether `own_profile` finds this machine's profile without measuring."""
    return _cache().read(_key(threads or available_cores())) is not None


def keep(profile: Profile) -> Profile:
    """Keep a profile that was measured here. Return it."""
    _cache().store(_key(profile.threads), profile.to_json())
    return profile


def _cache() -> ResultCache:
    return ResultCache.named(PROFILES)


def _key(threads: int) -> dict[str, str | int]:
    found = processor()
    return {
        "format": FORMAT,
        "processor": found["name"],
        "instructions": found["instructions"],
        "kernels": native.kernels(),
        "threads": threads,
        "speccompile": __version__,
    }
