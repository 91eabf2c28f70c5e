// The text of `inspect --help`, as Python's command has it.
#pragma once

namespace spc::cli {

constexpr const char* kInspectHelp = R"help(  Show what BUNDLE holds: engines, graphs, buffers, files, the inputs it was
  built from, what its precisions cost, its proof.

  The JSON object has the keys
    digest    BLAKE3 of the list of files: the bundle's identity
    verified  whether the files were compared with their hashes
    manifest  the content of manifest.json
    buffers   [{name, dtype, shape, role, bytes}] of the graphs as traced, in
              float32; an engine's own are in manifest.engines[].graphs.
              bytes is a number, or a text like "8*window" where a width
              varies from run to run
    files     {path: {blake3, bytes}}
    lock      the content of lock.json
    prefixes  {engine: [name]} of the prefixes that it ships
    here      {engine: {exact, reason, widths, differing, largest}}: whether
              windows of these widths give the logits of single tokens, bit
              for bit, on this processor; null where that was not tried yet,
              as it is when the engine is opened
    proof     the content of proof.json

  What a precision costs is measured on the texts of prove.held_out, or on
  the prompts. proof.quality, where the recipe has either, has the keys
    file        as the recipe names it
    texts       how many; where drafts are a tree the first ones alone
    tokens      how many of theirs were predicted from those before them
    kl_tokens   how many of those kl_divergence is a mean over
    perplexity  of the target in transformers, eager, float32
    cache       {dtype, perplexity, same_argmax, kl_divergence} of the same
                with quantized keys and values, where the bundle has them
    cache_acceptance  [{engines, quantized, float}], acceptance by depth with
                the bundle's caches and with float caches: {rounds, drafted,
                tried, accepted}; tried, accepted: at each depth, drafts
                whose predecessors were accepted, and accepted ones
    engines     [{engines, executed_by, precision, block_size, perplexity,
                same_argmax, kl_divergence}], one for each target:
                perplexity exp of the mean negative log-likelihood;
                same_argmax share of tokens with the best token of
                transformers; kl_divergence from transformers, in nats

  Of a drafter that was made for its target, proof.drafter says how often it
  is right on what the target wrote itself; its keys are
    positions  places in these texts at which it drafted
    hit_rate   share of right drafts at depth 1, 2, .., each after the
               target's own tokens
    control    the same with features shifted by one token
    readings   {words: hit_rate} of other readings of its files
    better     those of them that fit clearly better

  Examples:
    speccompile-native inspect build/demo
    speccompile-native inspect build/demo --json | jq .manifest.exact
)help";

}  // namespace spc::cli
