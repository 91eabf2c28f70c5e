// The text of `generate --help`, as Python's command has it.
#pragma once

namespace spc::cli {

constexpr const char* kGenerateHelp = R"help(  Generate text with BUNDLE.

  The new text goes to stdout as it comes, in UTF-8, then a newline. A bundle
  without a tokenizer takes token ids and prints token ids. Several sequences
  are printed when all have ended, each below a line with its number.

  Options of sampling need a bundle that was built with decoding: sampling.
  Constraints need a bundle that was built with constraints: true. The text
  ends where it is complete.

  Rounds verify as many drafts as pay by the times measured here, and none
  while drafting does not, which never changes a token: where drafts are drawn
  (at a temperature above 0), or the bundle's method is approximate, every
  round has all of them.

  Pictures need a bundle of a target that sees them (target.images). A prompt
  has the target's own placeholder once for each of them; without any they
  come first.
  Files are PPM; PNG and JPEG need libpng and libjpeg.

  A target with an encoder (translation, correction, summaries) reads a
  source; a prompt is then the beginning of the answer, and needs not be
  given.
  One that hears (Whisper) takes a sound of up to the length of its encoder,
  30 s, and writes no times; long sounds: `speccompile-native transcribe`.

  Some drafters learn while they draft (token_recycling). What they know is
  gone with the process unless --state names a file for it. It never changes a
  token, only how many drafts are accepted.

  The JSON object, one a line where there are several sequences, has the keys
    text               the new text; null without a tokenizer
    token_ids          the new tokens
    prompt_tokens      tokens of the prompt
    rounds             verifications after the prefill
    mean_accepted      new tokens a round, the bonus token included; 1.0 is
                       autoregressive, null without a round
    seconds            time of the whole generation
    tokens_per_second  new tokens over seconds
    finish_reason      length, stop or capacity
    mode               speculative or autoregressive
    engine             name of the engine
    exact              whether the bundle's method, and its engine on this
                       processor, leave the target's output as it is
    kernels            the path of the kernels that ran, none for ONNX
                       Runtime's own, null for engines on GPUs
    seed               of the random numbers, null for greedy decoding
    logprobs           of each new token, at temperature 1; with --logprobs
    truncated_tokens   prompt tokens that were dropped; with --truncate
    encode_seconds     time of encoding the pictures; with --image

  Examples:
    speccompile-native generate build/demo -p 'def main(' -n 64
    speccompile-native generate build/demo --prompt-file - --stop $'\n\n' < prompt.txt
    speccompile-native generate build/demo --token-ids 1,2,3 --json | jq .token_ids
    speccompile-native generate build/demo --prompt 'def ' --temperature 0.8 --top-p 0.95 --seed 7
    speccompile-native generate build/demo --prompt 'def ' --temperature 1 --num-return-sequences 4
    speccompile-native generate build/demo --prompt 'def ' --logprobs --json | jq .logprobs
    speccompile-native generate build/demo --prompt 'def ' --fixed-draft-length
    speccompile-native generate build/recycling --prompt 'def ' --state learned.safetensors
    speccompile-native generate build/demo --prompt-file long.txt --session long.session
    speccompile-native generate build/slots --prompt 'Roses' --adapter poet=adapters/poet
    speccompile-native generate build/seeing --chat --prompt 'What is this?' --image photo.jpg
    speccompile-native generate build/corrector --source 'She go home.'
    speccompile-native generate build/translator --source-file text.txt --source-language en --target-language de
    speccompile-native generate build/whisper --audio talk.wav --source-language en
)help";

}  // namespace spc::cli
