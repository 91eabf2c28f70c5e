"""A bundle behind OpenAI's API: `speccompile serve`. Needs the extra `serve`.

app        endpoints; `make_app(model)` gives an ASGI application, for any server
model      the bundle that is served, and the service over it
reading    reads bodies within limits of time and memory; `connection`: HTTP within limits of size, time and number
requests   parses bodies for the service; `fields` and `schema` define them, `prompts`, `tools` and
           `structured_outputs` interpret them
response   answers in OpenAI's form, with `usage`, `tokens` and `errors`; `stream`: as events
metrics    counters under vLLM's names; `run`: the process; `openapi`: the description that ships as openapi.json
"""
