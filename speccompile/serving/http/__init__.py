"""A bundle behind OpenAI's API: `speccompile serve`. Needs the extra `serve`.

app        endpoints; `make_app(model)` gives an ASGI application, for any server
model      the bundle that is served, and the service over it
connection HTTP connections with limits of size, time and number
reading    reads bodies within limits of time and memory, where needed in processes of their own
requests   parses bodies for the service; `fields` and `schema` define bodies, `prompts`, `tools` and
           `structured_outputs` interpret them
response   answers in OpenAI's form, whole or in chunks; with `usage` and `tokens`
stream     awaits output deltas and sends events; metrics: counters under vLLM's names
errors     errors in OpenAI's form
run        the process: socket, signals, end
openapi    the description that ships as openapi.json
"""
