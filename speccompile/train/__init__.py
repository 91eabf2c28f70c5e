"""Training of drafters: the very modules that are compiled learn, and a checkpoint is judged by the compiled loop.

    plan        what will be done, every default decided: `recipe.training`, from the section `train`
    data/       prompts, conversations or texts -> tokens and which of them are learnt; batches by seed and step
    answers/    the target's own answers, by the compiled bundle, by transformers or by an endpoint
    teacher     what the target makes of a batch: features and logits
    losses      what a draft is worth, as functions of two distributions; objective puts them together for a batch
    loop        steps, by accelerate; checkpoints, watch, curves beside it
    evaluate/   what a checkpoint will do: by depth, in simulated rounds, in compiled ones
    run         all of it, in order

What is a family's own stands in `families/<kind>/training.py`, beside what compiles it; `families/learning.py` says
what that is.
"""
