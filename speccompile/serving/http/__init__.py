"""A bundle behind OpenAI's API: `speccompile serve`. Needs the extra `serve`.

app       endpoints; `make_app(model)` gives an ASGI application, for any server
model     the bundle that is served, and the service over it
ask       a body as what is asked of the service; `fields` and `schema` say what bodies may hold, `prompts` and
          `structure` what their words mean
answer    what came, in OpenAI's form, whole or in pieces; with `usage` and `tokens`
stream    pieces awaited, and sent
metrics   what is counted, under vLLM's names
refusal   errors in OpenAI's form
run       the process: socket, signals, end
openapi   the description that ships as openapi.json
"""
