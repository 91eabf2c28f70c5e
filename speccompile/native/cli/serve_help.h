// The text of `serve --help`.
#pragma once

namespace spc::cli {

constexpr const char* kServeHelp = R"help(  Serve BUNDLE behind OpenAI's API, without Python.

  The address is the one line on stdout. It answers at once: /health says 503
  until the bundle is open. On SIGTERM or Ctrl-C no more requests are taken,
  those that are there are finished within --grace, and the exit code is 0; a
  second signal ends at once.

  Requests share the rows of the bundle (cache.batch_size); those that find none
  free wait, and get 429 with Retry-After where too many do. Keys come from
  --api-key, --api-key-file and the environment variable SPECCOMPILE_API_KEY
  (several with commas between them); without any everybody is let in. /health,
  /metrics, /version, /openapi.json and the page need none. TLS is left to a
  proxy in front of it.

  At / is a page to talk to the model in a browser; --no-page leaves it out.

  --adapter NAME=FOLDER serves the target with a LoRA adapter as the model
  BUNDLE:NAME. The bundle needs slots for adapters.

  Fields, limits, errors and metrics are those of `speccompile serve`. Refused
  by name are the few constraints that need it; pictures are data: URLs.

  Endpoints
    GET  /                                        the page
    POST /v1/completions, /v1/chat/completions    also as streams
    GET  /v1/models, /v1/models/NAME, /bundle
    POST /tokenize, /detokenize
    GET  /health, /metrics, /version, /openapi.json

  Examples:
    speccompile-native serve build/demo
    speccompile-native serve build/demo --port 0 --api-key-file keys.txt
    speccompile-native serve build/demo --unix /run/speccompile.sock --waiting 8
    curl localhost:8000/v1/completions -H 'Content-Type: application/json' \
      -d '{"prompt": "def main(", "max_tokens": 64}'
)help";

}  // namespace spc::cli
