"""Skip, before anything is built, draft shapes that cannot win on this machine."""

from collections.abc import Sequence

from speccompile.errors import UsageError
from speccompile.measure.predict import ProfileCosts, predict
from speccompile.measure.profile import Profile
from speccompile.measure.tune.space import DraftShape, TunedRecipe
from speccompile.progress import LOGGER


def promising(source: TunedRecipe, shapes: Sequence[DraftShape], profile: Profile) -> list[DraftShape]:
    """Return the shapes that could be faster than autoregression if every draft were accepted; log the others.

    Raise UsageError for a recipe whose time has no formula, and if no shape is left.
    """
    kept = []
    for shape in shapes:
        settings = source.shape_settings(shape)
        plan = source.planned(*settings)
        # the shape is the plan's own: a chain's other lengths are predicted as well
        predicted = predict(plan, ProfileCosts(profile), device=profile.processor, memory=None).shapes
        found = next(each for each in predicted if each.drafts == plan.drafter.tokens)
        if found.speedup.high > 1:
            kept.append(shape)
        else:
            LOGGER.info("skipping %s: at most %.2f times autoregression is predicted", shape.label, found.speedup.high)
    if not kept:
        raise UsageError(
            "--predict: no shape could be faster than autoregression, expected one at least",
            hint="decode without drafts (drafter.kind none), or leave --predict out to measure it",
        )
    return kept
