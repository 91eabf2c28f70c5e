"""Schema of the sections `cache` and `drafter_cache`: see `recipe.schema`."""

from speccompile.plan.section import Section
from speccompile.plan.section import optional as _optional


class Cache(Section):
    max_length: int | None = _optional("a whole number of tokens from 2 on", 2048, ge=2)
    batch_size: int | None = _optional("a whole number from 1 to 256", 1, ge=1, le=256)
    prefill_chunk: int | None = _optional("a whole number of tokens from 1 on", 128, ge=1)
    dtype: str | None = _optional("the name of a cache's dtype", "int8", min_length=1)
    key: str | None = _optional("float or int8, with cache.value", "int8", min_length=1)
    value: str | None = _optional("float, int8 or int4, with cache.key", "int4", min_length=1)
    sliding: str | None = _optional("full or ring", "ring", min_length=1)
    ring_rows: int | None = _optional("a whole number of rows from 1 on", 1024, ge=1)
    long_factors: bool | None = _optional("true or false", "true")
    max_divergence: float | None = _optional("a number of nats above 0", 0.01, gt=0, allow_inf_nan=False)
    max_acceptance_loss: float | None = _optional("a share above 0 and below 1", 0.05, gt=0, lt=1)


class DrafterCache(Section):
    dtype: str | None = _optional("the name of a cache's dtype", "int8", min_length=1)
    key: str | None = _optional("float or int8, with drafter_cache.value", "int8", min_length=1)
    value: str | None = _optional("float, int8 or int4, with drafter_cache.key", "int4", min_length=1)
